"""The command ``wanbed`` as it is installed: it finds its own packages in any folder."""

import wanbed.own_modules  # noqa: F401 - first, since it decides where the next line's package comes from
from runner.cli.command_line import main

__all__ = ["main"]

"""Provide the installed command ``wanbed``, which finds its own packages from any folder."""

import wanbed.own_modules  # noqa: F401 - first, since it decides where the next line's package comes from
from runner.cli.command_line import main

__all__ = ["main"]

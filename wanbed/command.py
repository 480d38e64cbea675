"""Provide the installed command ``wanbed``."""

import gc
import os
import signal

_INTERRUPTED = 128 + signal.SIGINT


def main() -> None:
    """Run the command.

    Importing a command's module takes a good part of a second. Ctrl-C during that ends in one line, as it does later.
    So next to nothing is imported before ``main`` is called: what is, and Python's own start, cannot be guarded.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    from wanbed.ground.garbage import collect_rarely  # noqa: PLC0415

    collect_rarely()
    from wanbed.runner.cli.command_line import main as run  # noqa: PLC0415

    try:
        run()
    finally:
        # Python looks through everything for garbage before it ends, which takes longer than to draw a picture.
        gc.freeze()


def _end(_: int, __: object) -> None:
    """End at once: nothing has been started. An exception in the middle of an import could be lost or reworded."""
    os.write(2, b"wanbed: interrupted, nothing of it is left running\n")
    os._exit(_INTERRUPTED)

"""The gate where all ranks of a trial wait for each other before they begin, as two named pipes in a folder.

A rank writes a byte to ``MET`` once it is ready, and reads from ``BEGIN`` until the runner, the only one that has it
open for writing, closes it. So all begin at one instant, wherever they are. If they agreed by messages, ranks that are
far away would begin a latency later, and would compute out of step by it for the whole trial.
"""

import os
from pathlib import Path

MET, BEGIN = "met", "begin"


def wait_at_gate(folder: Path) -> None:
    """Report that this rank is ready, and wait until all are, or until the runner has ended. Raises OSError."""
    # Whoever comes after the runner has opened the gate finds no writer, and must not wait for one.
    begin = os.open(folder / BEGIN, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(begin, True)
    try:
        met = os.open(folder / MET, os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(met, b"\0")
        finally:
            os.close(met)
        while os.read(begin, 1):
            pass
    finally:
        os.close(begin)

"""The gate where all ranks of a trial wait for each other before they begin: two named pipes in a folder.

A rank writes a byte to ``MET`` when it is ready. It then reads from ``BEGIN`` until the runner, the only process that
has it open for writing, closes it. So all ranks begin at the same instant. If they agreed by messages, distant ranks
would begin one latency later, and would stay out of step by that much for the whole trial.
"""

import os
from pathlib import Path

PIPES = MET, BEGIN = "met", "begin"


def report_at_gate(folder: Path) -> None:
    """Report that this process is ready, without waiting for the others. Raise OSError."""
    met = os.open(folder / MET, os.O_WRONLY | os.O_NONBLOCK)
    try:
        os.write(met, b"\0")
    finally:
        os.close(met)


def wait_at_gate(folder: Path) -> None:
    """Report that this rank is ready, and wait until all are, or until the runner has ended. Raise OSError."""
    # A rank that comes after the runner has opened the gate finds no writer. A blocking open would wait for one.
    begin = os.open(folder / BEGIN, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(begin, True)
    try:
        report_at_gate(folder)
        while os.read(begin, 1):
            pass
    finally:
        os.close(begin)

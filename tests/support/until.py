"""Wait in a test for what other processes do."""

import time
from collections.abc import Callable


def until_within(patience_s: float, reached: Callable[[], bool]) -> None:
    """Wait until a condition holds, also on a slow machine."""
    deadline_s = time.monotonic() + patience_s
    while not reached():
        assert time.monotonic() < deadline_s, f"not reached within {patience_s:g} s"
        time.sleep(0.01)

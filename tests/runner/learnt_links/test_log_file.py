"""A log is read from whatever file it is in, and an error names the file."""

from pathlib import Path

import pytest

from wanbed.runner.learnt_links.capture_log import captured_packets
from wanbed.runner.learnt_links.log_file import read_log

UNREADABLE = Path("/proc/self/mem")
"""A regular file whose first bytes nobody can read."""


def test_a_file_that_fails_while_it_is_read_is_named() -> None:
    with pytest.raises(OSError, match="Input/output error") as fault:
        read_log(UNREADABLE)
    assert fault.value.filename == str(UNREADABLE)


def test_a_capture_that_fails_while_it_is_read_is_named() -> None:
    with pytest.raises(OSError, match="Input/output error") as fault:
        list(captured_packets(UNREADABLE))
    assert fault.value.filename == str(UNREADABLE)

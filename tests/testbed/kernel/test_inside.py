from pathlib import Path

import pytest

from wanbed.testbed.kernel.inside import in_virtual_time


@pytest.mark.parametrize(
    ("options", "virtual"),
    [
        ("root=98:0 mem=2G time-travel=inf-cpu init=/sbin/init\n", True),
        ("root=98:0 mem=2G time-travel init=/sbin/init\n", False),
        ("BOOT_IMAGE=/vmlinuz quiet\n", False),
    ],
)
def test_virtual_time_is_detected_from_the_kernel_command_line(tmp_path: Path, options: str, *, virtual: bool) -> None:
    command_line = tmp_path / "cmdline"
    command_line.write_text(options)
    assert in_virtual_time(command_line) is virtual

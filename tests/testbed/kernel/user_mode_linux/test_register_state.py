"""The size of a process's registers, asked of this machine's kernel."""

from pathlib import Path

from wanbed.testbed.kernel.user_mode_linux.register_state import register_state_bytes


def test_the_state_has_the_legacy_area_its_header_and_what_the_processor_adds() -> None:
    flags = Path("/proc/cpuinfo").read_text(encoding="ascii")
    size = register_state_bytes()
    assert size is not None
    assert 512 + 64 <= size < 2**16
    assert (size > 2696 + 8192 - 64) == ("amx_tile" in flags)

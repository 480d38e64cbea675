"""Processors stay awake while the block lasts, where the machine lets a process ask for it."""

import os
from pathlib import Path

from wanbed.testbed.kernel.prompt_wakeups import prompt_wakeups


def opened() -> set[str]:
    return {os.readlink(each) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()}


def test_the_request_lasts_as_long_as_the_block(tmp_path: Path) -> None:
    device = tmp_path / "cpu_dma_latency"
    device.touch()
    with prompt_wakeups(device) as awake:
        assert awake
        assert str(device) in opened()
        assert device.read_bytes() == bytes(4), "a 32-bit number of microseconds, as the kernel reads it"
    assert str(device) not in opened()


def test_a_machine_that_does_not_allow_it_is_told_so(tmp_path: Path) -> None:
    with prompt_wakeups(tmp_path / "absent") as awake:
        assert not awake


def test_the_kernel_holds_the_request_of_this_process_where_it_may_ask() -> None:
    device = Path("/dev/cpu_dma_latency")
    with prompt_wakeups() as awake:
        assert awake is os.access(device, os.W_OK)
        assert not awake or int.from_bytes(device.read_bytes(), "little") == 0

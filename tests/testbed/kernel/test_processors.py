"""CPU times are parsed, and processors stay awake while the block lasts."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from wanbed.testbed.kernel.processors import (
    CpuTimes,
    parse_cpu_times,
    process_tree_cpu_s,
    prompt_wakeups,
    read_cpu_times,
)

STAT = "cpu  100 5 50 800 40 3 2 0 30 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n"


def test_waiting_for_disks_is_idle_and_guests_count_once() -> None:
    assert parse_cpu_times(STAT) == CpuTimes(total_ticks=1000, idle_ticks=840)


def test_busy_is_the_share_of_all_cores_since_then() -> None:
    assert CpuTimes(1100, 850).busy_since(CpuTimes(1000, 840)) == pytest.approx(0.9)
    assert CpuTimes(1000, 840).busy_since(CpuTimes(1000, 840)) is None


@pytest.mark.parametrize("text", ["", "cpu 1 2 3\n", "intr 1 2 3 4 5 6 7 8\n"])
def test_another_file_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="its first line is"):
        parse_cpu_times(text)


def test_what_this_process_computes_is_among_what_the_machine_has_been_busy_with() -> None:
    before, begun_s = read_cpu_times(), time.process_time()
    while (own_s := time.process_time() - begun_s) < 0.3:
        pass
    after = read_cpu_times()
    busy = after.busy_since(before)
    assert busy is not None
    busy_s = busy * (after.total_ticks - before.total_ticks) / os.sysconf("SC_CLK_TCK")
    # Ticks are of 10 ms, and each reading rounds down.
    assert busy_s >= own_s - 0.05
    assert busy <= 1


def test_process_tree_time_includes_all_descendants() -> None:
    burn = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ntime.sleep(60)"
    with subprocess.Popen(
        ["sh", "-c", '"$@"; true', "tree", sys.executable, "-c", burn], stdout=subprocess.PIPE, start_new_session=True
    ) as tree:
        assert tree.stdout is not None
        tree.stdout.readline()
        spent_s = process_tree_cpu_s(tree.pid)
        os.killpg(tree.pid, 9)
    assert 0.25 <= spent_s < 3


def test_a_process_that_is_gone_has_no_time() -> None:
    with subprocess.Popen(["true"]) as gone:
        pass
    assert process_tree_cpu_s(gone.pid) == 0


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

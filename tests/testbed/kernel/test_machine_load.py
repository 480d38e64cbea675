import os
import subprocess
import sys
import time

import pytest

from wanbed.testbed.kernel.machine_load import CpuTimes, parse_cpu_times, process_tree_cpu_s, read_cpu_times

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

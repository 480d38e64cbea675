import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.support.until import until_within
from wanbed.testbed.hosts.host import Program
from wanbed.testbed.hosts.process_group import ProcessGroup, Start

FOREVER = "import time; print('begun', flush=True); time.sleep(60)"
STUBBORN = "import signal, time; signal.signal(15, signal.SIG_IGN); print('begun', flush=True); time.sleep(60)"


def program(text: str) -> Start:
    def start(output: int) -> Program:
        return Program([sys.executable, "-c", text], stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    return start


def started(group: ProcessGroup, folder: Path, *texts: str) -> ProcessGroup:
    for number, text in enumerate(texts):
        group.start(program(text), folder / str(number))
    return group


def begun(folder: Path, number: int) -> None:
    until_within(60, lambda: "begun" in (folder / str(number)).read_text())


def test_the_first_that_fails_is_found_while_others_run(tmp_path: Path) -> None:
    with started(ProcessGroup(), tmp_path, FOREVER, "", "raise SystemExit(3)") as group:
        assert group.first_failure(partial(group.wait_for_any, 30)) == 2
        assert (group.statuses()[0], group.statuses()[2]) == (None, 3)


def test_a_process_that_a_signal_ends_has_failed(tmp_path: Path) -> None:
    with started(ProcessGroup(), tmp_path, "import os; os.kill(os.getpid(), 9)") as group:
        assert group.first_failure(partial(group.wait_for_any, 30)) == 0
        assert group.statuses() == [-9]


def test_the_others_go_on_after_a_failure_that_is_expected(tmp_path: Path) -> None:
    with started(ProcessGroup(), tmp_path, "raise SystemExit(3)", "import time; time.sleep(0.2)") as group:
        assert group.first_failure(partial(group.wait_for_any, 30), lambda number: number == 0) is None
        assert group.statuses() == [3, 0]


def test_none_has_failed_where_all_end_well(tmp_path: Path) -> None:
    with started(ProcessGroup(), tmp_path, "", "") as group:
        assert group.first_failure(partial(group.wait_for_any, 30)) is None
        assert group.statuses() == [0, 0]


def test_between_two_looks_there_is_a_pause(tmp_path: Path) -> None:
    pauses = 0
    with started(ProcessGroup(), tmp_path, FOREVER) as group:

        def pause() -> None:
            nonlocal pauses
            pauses += 1
            if pauses == 3:
                group.terminate()
                assert group.wait_for_all(60)

        assert group.first_failure(pause) == 0
    assert pauses == 3


@pytest.mark.parametrize(
    ("text", "tail"),
    [
        ("print('one'); raise SystemExit('the reason')", "the reason"),
        ("print('  the reason  \\n\\n')", "the reason"),
        ("import sys; sys.stdout.buffer.write(b'\\xff')", "\N{REPLACEMENT CHARACTER}"),
        ("", ""),
    ],
)
def test_the_tail_of_what_it_printed_is_kept(tmp_path: Path, text: str, tail: str) -> None:
    with started(ProcessGroup(), tmp_path, text) as group:
        assert group.wait_for_all(30)
        assert group.stderr_tail(0) == tail


def test_wait_for_all_reports_processes_that_ignore_sigterm(tmp_path: Path) -> None:
    with started(ProcessGroup(), tmp_path, FOREVER, STUBBORN) as group:
        begun(tmp_path, 1)
        group.terminate()
        assert not group.wait_for_all(1.0)
        assert group.statuses() == [-15, None]


def test_none_is_left_behind_whatever_ends_it(tmp_path: Path) -> None:
    pids: list[int] = []

    def noted(start: Start, output: int) -> Program:
        process = start(output)
        assert isinstance(process, Program)
        pids.append(process.pid)
        return process

    def interrupted() -> None:
        with ProcessGroup() as group:
            for number, text in enumerate([FOREVER, STUBBORN, ""]):
                group.start(partial(noted, program(text)), tmp_path / str(number))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert len(pids) == 3
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_those_that_were_started_end_where_a_later_one_cannot_be(tmp_path: Path) -> None:
    with started(ProcessGroup(), tmp_path, FOREVER) as group, pytest.raises(FileNotFoundError):
        group.start(lambda _: Program(["/nowhere/at-all"]), tmp_path / "1")
    assert group.statuses() == [-9]


def test_a_process_is_started_again_under_its_number(tmp_path: Path) -> None:
    with started(ProcessGroup(), tmp_path, FOREVER) as group:
        group.start_again(0, program("raise SystemExit(3)"), tmp_path / "again")
        assert group.wait_for_all(30)
        assert group.statuses() == [3]

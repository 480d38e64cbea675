import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

from wanbed.module_process import module_command
from wanbed.testbed.virtual_time.watchdog import (
    InnerProcess,
    Look,
    OutsideView,
    Patience,
    Watchdog,
    described,
    parse_processes,
    waiting,
)

PATIENCE = Patience(spin_cpu_s=10, quiet_virtual_s=100, still_wall_s=1000)
S = 10**9


def watched(*looks: tuple[float, float, float, int]) -> list[bool | None]:
    """Verdicts over looks of (wall seconds, virtual seconds, CPU seconds, sign)."""
    watchdog = Watchdog(PATIENCE)
    return [watchdog.spins(Look(wall, round(virtual * S), cpu, sign)) for wall, virtual, cpu, sign in looks]


def test_a_clock_that_stands_still_while_the_guest_computes_is_a_spin() -> None:
    assert watched((0, 5, 0, 0), (6, 5, 6, 0), (11, 5, 11, 0)) == [None, None, True]


def test_the_least_that_the_clock_moves_is_no_spin() -> None:
    assert watched((0, 5, 0, 0), (9, 5 + 1e-9, 9, 0), (18, 5 + 1e-9, 18, 0)) == [None, None, None]


def test_a_busy_machine_that_gives_the_guest_little_makes_no_spin() -> None:
    assert watched((0, 5, 0, 0), (500, 5, 9, 0)) == [None, None]


def test_a_clock_that_runs_away_without_a_sign_is_a_deadlock() -> None:
    assert watched((0, 0, 0, 0), (1, 99, 1, 0), (2, 101, 2, 0)) == [None, None, False]


def test_a_sign_gives_it_all_its_patience_again() -> None:
    assert watched((0, 0, 0, 0), (1, 99, 1, 1), (2, 198, 2, 1), (3, 200, 3, 1)) == [None, None, None, False]


def test_idle_guest_whose_clock_stands_still_is_stuck() -> None:
    assert watched((0, 5, 1, 0), (999, 5, 1, 0), (1001, 5, 1, 0)) == [None, None, False]


TWO_PROCESSES = """
import os, signal, time
def child(work):
    if number := os.fork():
        return number
    while True:
        work()
spinning, waiting = child(lambda: None), child(lambda: time.sleep(0.0005))
ended = {}
while spinning not in ended:
    number, status = os.wait()
    ended[number] = os.WTERMSIG(status)
print(ended == {spinning: signal.SIGALRM}, end="", flush=True)
os.kill(waiting, signal.SIGKILL)
"""


def test_without_a_kernel_there_is_no_clock() -> None:
    with subprocess.Popen(
        ["sh", "-c", "sleep 60 & wait"], stdin=subprocess.DEVNULL, start_new_session=True
    ) as launcher:
        view = OutsideView(launcher.pid, 0x60000000)
        assert view.virtual_ns() is None
        view.interrupt_spinning()
        subprocess.run(["kill", "--", f"-{launcher.pid}"], check=True)


def test_only_processes_that_never_stop_are_interrupted(tmp_path: Path) -> None:
    kernel = tmp_path / "linux"
    kernel.symlink_to(os.path.realpath(sys.executable))
    with subprocess.Popen(
        ["sh", "-c", '"$@"; true', "launcher", "sh", "-c", '"$@"; true', "shell", str(kernel), "-c", TWO_PROCESSES],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as launcher:
        assert launcher.stdout is not None
        view, deadline = OutsideView(launcher.pid, 0), time.monotonic() + 60
        try:
            while not select.select([launcher.stdout], [], [], 0.03)[0] and time.monotonic() < deadline:
                view.interrupt_spinning()
        finally:
            os.killpg(launcher.pid, signal.SIGKILL)
        assert launcher.stdout.read() == "True"


TEXT = """1 R /bin/sh /run/init
40 S bash --norc -is mininet:east-0
41 S grep a
42 S sleep 5
43 R /usr/bin/python3 -c while True: pass
nonsense
99 R /bin/sh /run/init
"""
OWN = "/run/init"


def numbers(text: str) -> list[int]:
    return [process.number for process in waiting(parse_processes(text), OWN)]


def test_all_but_shells_sleeps_and_the_first_process_may_wait_for_each_other() -> None:
    assert numbers(TEXT) == [41, 43]


def test_where_there_are_only_shells_and_sleeps_they_are_reported() -> None:
    kept = "".join(line + "\n" for line in TEXT.splitlines() if line.startswith(("1 ", "40", "42")))
    assert numbers(kept) == [40, 42]


def test_a_command_is_reported_by_its_program_and_shortened() -> None:
    command = " ".join(["/usr/bin/python3", *module_command("wanbed.workloads.rank")[1:]])
    assert str(InnerProcess(7, "R", command)) == "python3 -m wanbed.workloads.rank (process 7)"
    assert len(str(InnerProcess(7, "R", "/bin/echo " + 1000 * "x"))) < 110


def test_of_many_the_first_are_reported_and_how_many_more() -> None:
    assert described([InnerProcess(n, "S", "cat") for n in range(11)]).endswith("cat (process 7), and 3 more")
    assert described([]) == "no process"

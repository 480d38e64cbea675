"""How ranks, real processes over loopback, end when something is wrong: soon, and with one line."""

import os
import select
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.workloads.loopback_ranks import (
    LOOPBACK,
    MILLISECOND_NS,
    PATIENCE_S,
    ROOT,
    Start,
    endless,
    make_configs,
    outcome,
)
from wanbed.results.records.span_log import read_span_log
from wanbed.workloads.connected_config import RankProcessConfig
from wanbed.workloads.rank_config import RankConfig
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.transport.links_config import RendezvousConfig


def await_first_iteration(plan: RankConfig) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        path = Path(plan.process.span_log)
        if path.exists() and read_span_log(path).spans:
            return
        assert time.monotonic() < deadline, "no iteration ended"
        time.sleep(0.02)


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_when_a_rank_is_killed_every_other_fails_with_one_line_that_names_a_peer(
    tmp_path: Path, start: Start, victim: int
) -> None:
    plans = make_configs(tmp_path, PipelineShape(3, 4), iterations=100_000)
    processes = [start(plan) for plan in plans]
    await_first_iteration(plans[victim])
    processes[victim].kill()
    for rank, process in enumerate(processes):
        if rank == victim:
            continue
        status, errors = outcome(process)
        assert status == 1
        assert errors.startswith(f"wanbed rank {rank} (host-{rank}): ")
        assert errors.count("\n") == 1
        assert any(f"rank {peer} (host-{peer}, {LOOPBACK})" in errors for peer in (rank - 1, rank + 1))
        assert not read_span_log(Path(plans[rank].process.span_log)).complete


def test_a_rank_in_the_middle_of_a_long_action_fails_too(tmp_path: Path, start: Start) -> None:
    plans = [endless(plan) for plan in make_configs(tmp_path, PipelineShape(2, 1))]
    first, second = (start(plan) for plan in plans)
    wait_until_joined(plans[1])
    second.kill()
    status, errors = outcome(first)
    assert status == 1
    assert "rank 1 (host-1" in errors


def wait_until_joined(plan: RankConfig) -> None:
    """The span log is made once all connections stand."""
    deadline = time.monotonic() + PATIENCE_S
    while not Path(plan.process.span_log).exists():
        assert time.monotonic() < deadline, "the ranks did not join"
        time.sleep(0.02)


def test_a_rank_whose_peer_never_starts_says_so(tmp_path: Path, start: Start) -> None:
    plans = [
        replace(plan, rendezvous=replace(plan.rendezvous, timeout_ns=1000 * MILLISECOND_NS))
        for plan in make_configs(tmp_path, PipelineShape(3, 1))
    ]
    lines = [outcome(process)[1] for process in (start(plans[0]), start(plans[2]))]
    assert lines[0].startswith(f"wanbed rank 0 (host-0): rank 1 (host-1, {LOOPBACK}) port ")
    assert "answered 0 of 3 connections (Connection refused) within 1 s" in lines[0]
    assert "opened 0 of 3 connections" in lines[1]


def test_a_foreign_client_is_refused_and_the_run_goes_on(tmp_path: Path, start: Start) -> None:
    plans = make_configs(tmp_path, PipelineShape(2, 2))
    second = start(plans[1])
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            foreign = socket.create_connection((LOOPBACK, plans[1].rendezvous.listen_port))
            break
        except ConnectionRefusedError:
            assert time.monotonic() < deadline, "rank 1 does not listen"
            time.sleep(0.01)
    with closing(foreign):
        foreign.sendall(b"GET / HTTP/1.1\r\nHost: host-1\r\nAccept: */*\r\n\r\n")
        foreign.settimeout(PATIENCE_S)
        with suppress(ConnectionResetError):
            assert foreign.recv(1) == b""
    first = start(plans[0])
    assert outcome(first) == (0, "")
    status, errors = outcome(second)
    assert status == 0
    assert errors.startswith(f"wanbed rank 1 (host-1): dropped the client {LOOPBACK} port ")
    assert "it speaks another protocol" in errors


def test_a_rank_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    plan = endless(make_configs(tmp_path, PipelineShape(1, 1))[0])
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "plan.json")],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    replace(plan, process=replace(plan.process, parent_pid=parent.pid)).write(tmp_path / "plan.json")
    parent.stdin.write("go\n")
    parent.stdin.flush()
    rank_pid = int(parent.stdout.readline())
    wait_until_joined(plan)
    pidfd = os.pidfd_open(rank_pid)
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    assert select.select([pidfd], [], [], PATIENCE_S)[0], "the rank outlives its parent"
    os.close(pidfd)


PARENT = """
import subprocess, sys
sys.stdin.readline()
rank = subprocess.Popen([sys.executable, "-m", "wanbed.workloads.rank", sys.argv[1]])
print(rank.pid, flush=True)
rank.wait()
"""


def test_a_rank_whose_parent_has_ended_already_does_not_begin(tmp_path: Path, start: Start) -> None:
    (plan,) = make_configs(tmp_path, PipelineShape(1, 1), process=RankProcessConfig("unused", 0, parent_pid=1))
    assert outcome(start(plan)) == (
        1,
        "wanbed rank 0 (host-0): its parent is not process 1: that one has ended\n",
    )


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"schedule": "nowhere:Schedule"}, "nowhere:Schedule: No module named 'nowhere'"),
        ({"process": RankProcessConfig("unused", 2**62)}, "process.epoch_ns: lies in the future"),
        ({"rendezvous": RendezvousConfig("192.0.2.1", 20_000, "00" * 16)}, "cannot bind 192.0.2.1 port 20000"),
    ],
)
def test_an_invalid_config_fails_with_one_line(
    tmp_path: Path, start: Start, changes: dict[str, object], line: str
) -> None:
    plan = make_configs(tmp_path, PipelineShape(2, 1), **changes)[1]
    status, errors = outcome(start(plan))
    assert status == 1
    assert errors.startswith("wanbed rank 1 (host-1): ")
    assert line in errors
    assert errors.count("\n") == 1


def test_an_option_that_a_schedule_does_not_take_fails_with_one_line(tmp_path: Path, start: Start) -> None:
    _, plan = make_configs(tmp_path, PipelineShape(2, 1))
    status, errors = outcome(start(replace(plan, schedule=replace(plan.schedule, options={"depth": 3}))))
    assert status == 1
    assert "no option 'depth': it takes" in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize("text", ["", '{"rank": 3}'])
def test_a_file_that_is_no_config_fails_with_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "plan.json").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "wanbed.workloads.rank", str(tmp_path / "plan.json")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"wanbed rank: {tmp_path / 'plan.json'}: ")
    assert done.stderr.count("\n") == 1

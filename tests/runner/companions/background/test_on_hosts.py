"""Flows in the background of a trial, between processes on loopback."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.runner.background import TO_WEST, with_background
from tests.support.workloads.loopback_ranks import LOOPBACK, free_ports
from wanbed.results.records.schema import BackgroundSample, LinkSample
from wanbed.results.records.trial_tables import BACKGROUND_TABLE, LINK_TABLE
from wanbed.runner.companions.background import on_hosts as module
from wanbed.runner.companions.background.on_hosts import BackgroundTraffic
from wanbed.runner.companions.telemetry.on_hosts.telemetry import rows_of_job
from wanbed.runner.emulation.rank_configs import SharedConfig
from wanbed.runner.emulation.running_trial import RunningTrial, Trained
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.runs.faults import TrialError
from wanbed.testbed.hosts.host import Program
from wanbed.testbed.hosts.hosts_here import HostsHere
from wanbed.testbed.network.ethernet import MTU_BYTES


class Loopback(HostsHere):
    """A testbed whose hosts are all this machine, and whose queues are empty."""

    mtu_bytes = MTU_BYTES

    def __init__(self) -> None:
        self.started: list[Program] = []

    def start_module(self, _: str, name: str, arguments: list[str], output: int, **__: Any) -> Program:
        self.started.append(Program([sys.executable, "-m", name, *arguments], stdout=output, stderr=output))
        return self.started[-1]

    def read_counters(self) -> list[Any]:
        return []

    def address(self, _: Any) -> str:
        return LOOPBACK

    def address_from(self, *_: Any) -> str:
        return LOOPBACK


def point(*flows: dict[str, Any]) -> SweepPoint:
    (only,) = parse_experiment(with_background(*flows), "file", Path()).points()
    return only


@pytest.fixture
def testbed(monkeypatch: pytest.MonkeyPatch) -> Loopback:
    (port,) = free_ports(1)
    monkeypatch.setattr(module, "PORT", port)
    return Loopback()


def setting(testbed: Loopback, folder: Path, dilation: float = 1.0) -> SharedConfig:
    return SharedConfig(cast("Any", testbed), {}, dilation, "token", time.monotonic_ns(), folder, os.getpid())


def running(testbed: Loopback, own: SweepPoint, shared: SharedConfig) -> RunningTrial:
    return cast("RunningTrial", SimpleNamespace(testbed=testbed, point=own, setting=shared))


def test_a_flow_begins_with_training_and_its_rows_are_undilated(testbed: Loopback, tmp_path: Path) -> None:
    own, shared = point({**TO_WEST, "connections": 2}), setting(testbed, tmp_path, dilation=4.0)
    traffic = BackgroundTraffic(running(testbed, own, shared))
    with traffic.during():
        time.sleep(0.3)
        begin_ns = (time.monotonic_ns() - shared.epoch_ns) / 4
        traffic.begin()
        # Long enough for a busy machine: what came is known once the flow has ended.
        time.sleep(1.5)
    rows = cast("list[BackgroundSample]", traffic.left(Trained([])).tables[BACKGROUND_TABLE])
    assert {(row.flow, row.connection, row.source, row.destination) for row in rows} == {
        ("flow", number, "east-background-0", "west-background-0") for number in (0, 1)
    }
    assert all(row.received_bytes == 0 for row in rows if row.time_ns < begin_ns)
    assert all(row.received_bytes > 0 for row in rows[-2:])
    assert rows[-1].time_ns < (time.monotonic_ns() - shared.epoch_ns) / 4
    assert [process.returncode for process in testbed.started] == [0, 0]


def test_times_of_a_process_are_undilated_and_on_the_trials_time_line(testbed: Loopback, tmp_path: Path) -> None:
    traffic = BackgroundTraffic(running(testbed, point(TO_WEST), setting(testbed, tmp_path, dilation=4.0)))
    ahead_in_the_west = SimpleNamespace(trial_ns=lambda host, ns: ns - (100 if host == "west-0" else 0))
    alone, on_machines = Trained([]), Trained([], cast("Any", ahead_in_the_west))
    assert traffic.trial_ns(alone, "west-0", 1_000) == 250
    assert traffic.trial_ns(on_machines, "east-0", 1_000) == 250
    assert traffic.trial_ns(on_machines, "west-0", 1_000) == 225
    assert traffic.trial_ns(on_machines, "west-0", 60) == 0


def fail(testbed: Loopback, folder: Path, failure: Callable[[], None]) -> None:
    """Run a flow beside what ``failure`` does."""
    traffic = BackgroundTraffic(running(testbed, point(TO_WEST), setting(testbed, folder)))
    with traffic.during():
        traffic.begin()
        failure()


def test_flows_end_with_a_trial_that_fails(testbed: Loopback, tmp_path: Path) -> None:
    def ranks_fail() -> None:
        raise TrialError("rank 3 has ended")

    with pytest.raises(TrialError, match="rank 3"):
        fail(testbed, tmp_path, ranks_fail)
    assert all(process.poll() is not None for process in testbed.started)


def test_a_flow_that_ends_early_fails_the_trial(testbed: Loopback, tmp_path: Path) -> None:
    def kill_the_receiver() -> None:
        testbed.started[0].kill()
        testbed.started[0].wait()

    with pytest.raises(TrialError, match=r"background.*(sender: |status -9)"):
        fail(testbed, tmp_path, kill_the_receiver)


@pytest.mark.parametrize("flows", [(), (TO_WEST,)])
def test_a_trial_has_the_flows_that_its_experiment_asks_for(
    testbed: Loopback, tmp_path: Path, flows: tuple[dict[str, Any], ...]
) -> None:
    trial = running(testbed, point(*flows), setting(testbed, tmp_path))
    assert (BackgroundTraffic.of(trial) is not None) is bool(flows)


def test_counters_of_flows_are_kept_apart_from_trainings() -> None:
    own = point(TO_WEST)

    def row(scope: str, source: str, destination: str, wire_bytes: int) -> LinkSample:
        return LinkSample(5, scope, source, destination, wire_bytes, 1, 0, 0)

    rows = [
        row("link", "east", "west", 100),
        row("node_pair", "east-0", "west-0", 30),
        row("node_pair", "east-background-0", "west-background-0", 70),
    ]
    kept = rows_of_job({LINK_TABLE: rows}, {"east-0", "west-0"}, own.topology, [own.background[0].hosts])[LINK_TABLE]
    assert list(kept) == [
        row("link", "east", "west", 30),
        row("node_pair", "east-0", "west-0", 30),
        row("background", "east-background-0", "west-background-0", 70),
    ]

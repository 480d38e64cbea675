"""Flows in the background, resolved: what each offers, and between which hosts."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.present import present
from wanbed.ground.errors import InputError
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.resolved_variant import BackgroundFlow

FLOW = {"name": "x", "from": "east", "to": "west"}

TOPOLOGY: dict[str, Any] = {
    "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}],
    "wan": {"latency": "10ms", "node_pair_rate": "100Mbit"},
}


def flows(*written: dict[str, Any], directory: Path = Path(), **sections: Any) -> tuple[BackgroundFlow, ...]:
    return (
        parse_experiment(
            {
                "topology": TOPOLOGY,
                "compute": {"forward": "1ms", "activation": "1KiB"},
                "background": list(written),
                **sections,
            },
            "file",
            directory,
        )
        .points()[0]
        .background
    )


def test_a_flow_offers_its_rate_at_all_times_or_all_that_tcp_takes() -> None:
    bulk, limited = flows(FLOW, {**FLOW, "name": "y", "rate": "5Mbit", "protocol": "udp"})
    assert (bulk.offered.steps, bulk.offered.period_ns, bulk.offered.on_off) == (((0, None),), None, None)
    assert limited.offered.steps == ((0, 5_000_000),)
    assert (bulk.is_tcp, limited.is_tcp, bulk.kind, limited.kind) == (True, False, "bulk", "rate")


def test_times_on_and_off_are_drawn_by_seed_and_name_or_are_constant() -> None:
    on_off = {"burst": "20ms", "pause": "30ms"}
    drawn, fixed = flows(
        {**FLOW, "on_off": on_off}, {**FLOW, "name": "y", "on_off": {**on_off, "times": "constant"}}, seed=5
    )
    times = present(drawn.offered.on_off)
    assert (times.burst_ns, times.pause_ns, times.exponential) == (20_000_000, 30_000_000, True)
    (again,) = flows({**FLOW, "on_off": on_off}, seed=5)
    (other,) = flows({**FLOW, "on_off": on_off}, seed=6)
    assert again.offered == drawn.offered != other.offered
    assert fixed.offered.on_off is not None
    assert not fixed.offered.on_off.exponential
    assert (drawn.is_synthetic, fixed.is_synthetic) == (True, False)


def test_a_trace_is_offered_row_by_row_and_begins_anew_with_its_period(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("t_s,rate\n0,1Mbit\n2,3Mbit\n", encoding="utf-8")
    once, again = flows(
        {**FLOW, "trace": "t.csv"}, {**FLOW, "name": "y", "trace": "t.csv", "loop": "3s"}, directory=tmp_path
    )
    assert once.offered.steps == ((0, 1_000_000), (2 * 10**9, 3_000_000))
    assert once.offered.period_ns is None
    assert (again.offered.steps, again.offered.period_ns) == (once.offered.steps, 3 * 10**9)


def test_connections_and_their_settings_are_those_written() -> None:
    (flow,) = flows({**FLOW, "connections": 3, "window": "1MiB", "congestion": "reno"})
    assert (flow.connections, flow.transport.window, flow.transport.congestion) == (3, 2**20, "reno")
    assert flow.document() == {
        "name": "x",
        "kind": "bulk",
        "synthetic": False,
        "protocol": "tcp",
        "connections": 3,
        "source": "east",
        "destination": "west",
        "hosts": ["east-background-0", "west-background-0"],
    }


def test_a_flow_without_a_rate_needs_one_of_the_network() -> None:
    unlimited = {**TOPOLOGY, "wan": {"latency": "10ms"}}
    with pytest.raises(InputError, match=r"background\.1\.rate: from east to west nothing limits a flow"):
        flows({**FLOW, "rate": "1Mbit"}, {**FLOW, "name": "y"}, topology=unlimited)
    assert flows(FLOW, topology={**unlimited, "intra": {"rate": "1Gbit"}})
    assert flows({**FLOW, "rate": "1Mbit"}, topology=unlimited)


def test_no_flow_runs_beside_what_is_no_schedule_of_ranks() -> None:
    variants = [{"name": "a", "schedule": "gpipe"}, {"name": "p", "program": {"command": ["true"]}}]
    with pytest.raises(InputError, match=r"variants\.1\.program: background runs beside trainings by a schedule"):
        flows(FLOW, variants=variants)
    assert flows(variants=variants) == ()

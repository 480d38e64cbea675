"""Calibrations that still hold at another sweep point, and transfers that are small beside a burst."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from wanbed.ground.impairments import IMPAIRMENTS
from wanbed.ground.strict_model import parse_model
from wanbed.runner.emulation.measured_network import MAX_AGE_S, Calibration, bursts_of, small_transfers
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.testbed.measurement.calibration import LinkMeasurement
from wanbed.testbed.measurement.transfer_calibration import ComparedFigure
from wanbed.testbed.network.gateway_layout import plan_gateways
from wanbed.testbed.network.shared_rate import Timers
from wanbed.testbed.network.topology import resolve_topology
from wanbed.testbed.network.topology_spec import TopologySpec

REPORTED = {"qdiscs": {"east wan1": "netem delay 20ms"}, "sysctls": {"net.ipv4.tcp_rmem": "4096 131072 6291456"}}

BEGAN_S = 1000.0


def link(rtt_ms: float) -> LinkMeasurement:
    unimpaired = {each.column: ComparedFigure(0.0, 0.0) for each in IMPAIRMENTS}
    return LinkMeasurement("east", "west", "wan", 40.0, rtt_ms, None, 1e9, unimpaired, 100)


CALIBRATION = Calibration(2, {"training.microbatches": "4"}, "wb-1", REPORTED, BEGAN_S, (link(40.0), link(40.1)))


@pytest.mark.parametrize(
    ("network", "changed", "age_s", "rtts_ms", "holds"),
    [
        pytest.param("wb-1", {}, 1, (40.0, 40.1), True, id="a network that stayed up"),
        pytest.param("wb-1", {}, MAX_AGE_S, (40.0, 40.1), True, id="ten minutes"),
        pytest.param("wb-1", {}, MAX_AGE_S + 1, (40.0, 40.1), False, id="more than ten minutes"),
        pytest.param("wb-2", {}, 1, (40.0, 40.1), False, id="brought up anew, even if it reads the same"),
        pytest.param(
            "wb-1",
            {"qdiscs": {"east wan1": "netem delay 10ms"}},
            1,
            (40.0, 40.1),
            False,
            id="other qdiscs are reported",
        ),
        pytest.param("wb-1", {"sysctls": {}}, 1, (40.0, 40.1), False, id="other sysctls are reported"),
        pytest.param("wb-1", {}, 1, (40.0, 60.0), False, id="a link outside tolerance"),
    ],
)
def test_links_are_measured_again_unless_their_network_is_the_same_and_its_last_measurement_good_and_fresh(
    network: str, changed: dict[str, object], age_s: float, rtts_ms: tuple[float, float], holds: bool
) -> None:
    calibration = replace(CALIBRATION, links=tuple(map(link, rtts_ms)))
    assert calibration.holds(network, REPORTED | changed, BEGAN_S + age_s) is holds


def test_a_measurement_is_fresh_for_ten_minutes() -> None:
    assert MAX_AGE_S == 600


BURSTS = {("east", "west"): 10_000, ("west", "west"): 50_000}


def variant(tmp_path: Path, activation: str, **more: Any) -> ResolvedVariant:
    document = {
        "topology": {
            "datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 2}],
            "wan": {"latency": "20ms", "rate": "100Mbit"},
        },
        "compute": {"forward": "10ms", "backward": "20ms", "activation": activation, **more.pop("compute", {})},
        "training": {"microbatches": 4, **more.pop("training", {})},
        "variants": [{"name": "stock", "schedule": "1f1b", **more}],
    }
    ((resolved,),) = (point.variants for point in parse_experiment(document, "exp.yaml", tmp_path).points())
    return resolved


def test_an_activation_of_ten_times_the_burst_is_large_enough(tmp_path: Path) -> None:
    assert small_transfers(variant(tmp_path, "100kB"), {("east", "west"): 10_000}) == []
    (said,) = small_transfers(variant(tmp_path, "99kB"), {("east", "west"): 10_000})
    assert said.replace("\N{NO-BREAK SPACE}", " ") == (
        "stock: an activation of 99.0 kB is less than 10 times the 10.0 kB that east to west let go at once after a "
        "pause: as much may be early, of it and what follows without another pause"
    )


def test_the_path_with_the_largest_burst_is_named(tmp_path: Path) -> None:
    (said,) = small_transfers(variant(tmp_path, "64KiB"), BURSTS)
    assert "ports in west" in said


def test_bursts_of_unused_paths_are_ignored(tmp_path: Path) -> None:
    assert small_transfers(variant(tmp_path, "1KiB"), {("north", "west"): 10**9}) == []
    assert small_transfers(variant(tmp_path, "1KiB"), {}) == []


def test_a_share_of_a_transfer_and_a_segment_of_a_ring_count_by_themselves(tmp_path: Path) -> None:
    document = {"compute": {"gradient": "150kB"}, "training": {"stages": 2, "pipelines": 2}}
    shared = variant(tmp_path, "180kB", transport={"sharing": "temporal"}, **document)
    (share,) = small_transfers(shared, {("east", "west"): 10_000})
    assert "a node pair's share of an activation" in share
    (segment,) = small_transfers(shared, {("east", "east"): 8_000})
    assert "a ring's segment of the gradients" in segment


@pytest.mark.parametrize("timers", list(Timers))
def test_bursts_are_those_measured_of_trunks_and_those_set_of_ports(timers: Timers) -> None:
    document = {
        "datacenters": [{"name": "east", "hosts": 3}, {"name": "west", "hosts": 1}],
        "wan": {"latency": "20ms", "rate": "100Mbit"},
        "intra": {"rate": "1Gbit"},
    }
    plan = plan_gateways(resolve_topology(parse_model(TopologySpec, document, "test")), 1, timers)
    base = (40.0, 40.0, 1e8, 1e8, {}, 5)
    links = [
        LinkMeasurement("east", "west", "wan", *base, burst_bytes=1750),
        LinkMeasurement("west", "east", "wan", *base),
        LinkMeasurement("east", "east", "intra", *base),
    ]
    found = bursts_of(plan, links)
    assert found.pop(("east", "west")) == 1750
    (east,) = found.items()
    assert east[0] == ("east", "east")
    of_a_microsecond = 125
    assert east[1] == pytest.approx(max(3028, 125e6 * timers.value / 1e9), abs=of_a_microsecond)

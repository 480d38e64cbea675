"""Flows in the background share trunks with a simulated training."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runner.planner.experiment_file import parse_experiment
from runner.simulator.deadlock import SimulationError
from runner.simulator.network import background
from runner.simulator.simulation import FlowTraffic, Simulation
from runner.simulator.variant_simulation import simulate_variant
from tests.support.runner.background import TO_WEST, with_background
from tests.support.runner.two_jobs import two_jobs

S = 10**9
IDLE = {"forward": "400ms", "backward": "400ms", "activation": "1KiB"}
"""Training that leaves the link to others."""


def simulated(document: dict[str, Any], name: str = "1f1b") -> Simulation:
    (point,) = parse_experiment({"engine": "simulate", **document}, "file", Path()).points()
    variant = point.variant(name)
    return simulate_variant(point.topology, variant, point.iterations(variant))


def sent_mbit(flow: FlowTraffic, begin_s: float, end_s: float) -> float:
    """Return the rate in Mbit/s at which a flow sent, headers included."""
    before, after = flow.sent.sent_by(np.array([begin_s * S, end_s * S]).astype(np.int64))
    return float(after - before) * 8e-6 / (end_s - begin_s)


@pytest.mark.parametrize("connections", [1, 4])
def test_a_bulk_flow_fills_a_link_that_nobody_else_uses(connections: int) -> None:
    (flow,) = simulated(with_background({**TO_WEST, "connections": connections}, compute=IDLE)).background
    assert sent_mbit(flow, 1, 4) == pytest.approx(100, rel=0.01)
    assert (flow.sent.source, flow.sent.destination) == ("east-background-0", "west-background-0")


def test_what_is_received_is_the_payload_one_latency_later() -> None:
    (flow,) = simulated(with_background(TO_WEST, compute=IDLE)).background
    at_ns = np.arange(1, 4) * S
    payload = flow.received.sent_by(at_ns + 10_000_000)
    assert payload == pytest.approx(flow.sent.sent_by(at_ns) * 1448 / 1514, rel=1e-4)


def test_of_a_datagram_1472_bytes_of_1514_are_payload() -> None:
    (flow,) = simulated(with_background({**TO_WEST, "rate": "30Mbit", "protocol": "udp"}, compute=IDLE)).background
    at_ns = np.arange(1, 4) * S
    payload = flow.received.sent_by(at_ns + 10_000_000)
    assert payload == pytest.approx(flow.sent.sent_by(at_ns) * 1472 / 1514, rel=1e-4)


def test_a_bulk_flow_takes_half_of_a_trunk_that_training_keeps_busy() -> None:
    gpipe = [{"name": "1f1b", "schedule": "gpipe"}]
    compute = {"forward": "1ms", "backward": "1ms", "activation": "8MiB"}
    document = with_background(variants=gpipe, compute=compute)
    alone = simulated(document)
    beside = simulated({**document, "background": [TO_WEST]})
    (flow,) = beside.background
    (there,) = [each for each in beside.traffic if each.source == "east-0"]
    # GPipe's 8 activations of 8 MiB take 10 s over half of the link.
    training = float(np.diff(there.sent_by(np.array([2 * S, 8 * S]))).item()) * 8e-6 / 6
    assert training == pytest.approx(50, rel=0.02)
    assert sent_mbit(flow, 2, 8) == pytest.approx(50, rel=0.02)
    assert beside.iteration_time_ns(1) == pytest.approx(1.5 * alone.iteration_time_ns(1), rel=0.05)


def test_a_trunk_that_is_wide_enough_for_all_leaves_training_as_alone() -> None:
    wan = {"rate": "400Mbit", "node_pair_rate": "100Mbit"}
    alone, beside = (simulated(with_background(*flows, wan=wan)) for flows in ((), (TO_WEST,)))
    for column in ("rank", "kind", "iteration", "microbatch", "start_ns", "end_ns", "size_bytes", "peer"):
        assert np.array_equal(getattr(alone.spans, column), getattr(beside.spans, column)), column


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_a_flow_with_a_rate_has_that_rate_on_the_wire(protocol: str) -> None:
    flow_of = {**TO_WEST, "rate": "30Mbit", "protocol": protocol}
    (flow,) = simulated(with_background(flow_of, compute=IDLE)).background
    assert sent_mbit(flow, 1, 4) == pytest.approx(30, rel=0.01)


def test_datagrams_beyond_the_rate_of_a_link_are_lost() -> None:
    (flow,) = simulated(with_background({**TO_WEST, "rate": "300Mbit", "protocol": "udp"}, compute=IDLE)).background
    assert sent_mbit(flow, 1, 4) == pytest.approx(100, rel=0.01)


def test_a_flow_is_silent_in_its_pauses() -> None:
    times = {"burst": "500ms", "pause": "500ms", "times": "constant"}
    (flow,) = simulated(with_background({**TO_WEST, "on_off": times, "rate": "50Mbit"}, compute=IDLE)).background
    assert sent_mbit(flow, 2.0, 2.5) == pytest.approx(50, rel=0.03)
    assert sent_mbit(flow, 2.51, 3.0) == 0


def test_a_flow_follows_its_trace(tmp_path: Path) -> None:
    traces = {"t.csv": "t_s,rate\n1,20Mbit\n2,60Mbit\n3,\n"}
    (flow,) = simulated(
        with_background({**TO_WEST, "trace": "t.csv", "loop": True}, traces=traces, compute=IDLE)
    ).background
    for begin_s, rate in ((0, 0), (1, 20), (2, 60), (3, 0), (4, 20)):
        assert sent_mbit(flow, begin_s + 0.02, begin_s + 1) == pytest.approx(rate, rel=0.03), begin_s


def test_a_flow_follows_a_link_that_changes() -> None:
    wan = {"events": [{"at": "2s", "rate": "40Mbit"}]}
    (flow,) = simulated(with_background(TO_WEST, wan=wan, compute=IDLE)).background
    assert sent_mbit(flow, 1, 2) == pytest.approx(100, rel=0.02)
    assert sent_mbit(flow, 2.5, 4) == pytest.approx(40, rel=0.02)


def test_a_flow_crosses_links_that_lose_packets() -> None:
    (flow,) = simulated(with_background({**TO_WEST, "connections": 4}, wan={"loss": "0.5%"}, compute=IDLE)).background
    assert 5 < sent_mbit(flow, 1, 4) < 100


def test_all_members_of_a_combination_of_jobs_find_the_same_flows() -> None:
    flows = [TO_WEST, {"name": "back", "from": "west", "to": "east", "rate": "20Mbit"}]
    document = two_jobs(rate="200Mbit", background=flows)
    ours, theirs = (simulated(document, name) for name in ("ours beside theirs", "theirs beside ours"))
    for one, other in zip(ours.background, theirs.background, strict=True):
        assert np.array_equal(one.sent.wire_bytes, other.sent.wire_bytes)
    alone = simulated(two_jobs(rate="200Mbit"), "ours beside theirs")
    assert ours.iteration_time_ns(1) > 1.1 * alone.iteration_time_ns(1)


def test_training_in_which_nothing_ends_any_more_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "_PATIENCE_NS", 300_000_000)
    with pytest.raises(SimulationError, match="nothing has ended in training for an hour of simulated time"):
        simulated(with_background(TO_WEST, compute=IDLE))

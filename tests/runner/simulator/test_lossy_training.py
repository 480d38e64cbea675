"""Trainings over links that lose or jitter packets, simulated segment by segment."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.runner.small_experiment import sweep_point
from wanbed.results.records.span_log import SPAN_KINDS
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.resolve.tcp_effects import IDEAL
from wanbed.runner.simulator.simulation import Simulation
from wanbed.runner.simulator.variant_simulation import simulate_variant


def point(wan: dict[str, str], *, activation: str = "1MiB", pipelines: int = 1, **transport: Any) -> SweepPoint:
    return sweep_point(
        {
            "engine": "simulate",
            "clock": "virtual",
            "topology": {
                "datacenters": [{"name": "east", "hosts": pipelines}, {"name": "west", "hosts": pipelines}],
                "wan": {"latency": "20ms", "rate": "1Gbit", **wan},
            },
            "compute": {"forward": "10ms", "backward": "20ms", "activation": activation, "gradient": "1MiB"},
            "training": {"stages": 2, "pipelines": pipelines, "microbatches": 4, "iterations": 2, "warmup": 0},
            "variants": [{"name": "v", "schedule": "gpipe", "transport": transport}],
        }
    )


def simulated(own: SweepPoint, iterations: int = 2, repeat: int = 0) -> Simulation:
    return simulate_variant(own.topology, own.variants[0].in_repeat(repeat), iterations)


def iteration_s(simulation: Simulation) -> float:
    return float(np.mean([end_ns - begin_ns for begin_ns, end_ns in simulation.windows_ns])) / 1e9


def test_the_same_seed_and_repeat_draw_the_same_losses() -> None:
    own = point({"loss": "1%"}, connections=4)
    one, again, other = simulated(own), simulated(own), simulated(own, repeat=1)
    assert one.spans.end_ns.tolist() == again.spans.end_ns.tolist()
    assert one.spans.end_ns.tolist() != other.spans.end_ns.tolist()


@pytest.mark.parametrize("congestion", ["cubic", "bbr"])
@pytest.mark.parametrize("connections", [1, 3])
def test_every_message_arrives_whatever_is_lost(congestion: str, connections: int) -> None:
    spans = simulated(point({"loss": "20%"}, activation="64KiB", congestion=congestion, connections=connections)).spans
    assert int(np.sum(spans.kind == SPAN_KINDS.index("receive"))) == 2 * 2 * 4


@pytest.mark.parametrize("congestion", ["cubic", "bbr"])
def test_a_hardly_impaired_link_takes_as_long_as_one_that_is_not(congestion: str) -> None:
    clean = iteration_s(simulated(point({}, congestion=congestion, slow_start_after_idle=False), 6))
    hardly = iteration_s(simulated(point({"jitter": "1us"}, congestion=congestion, slow_start_after_idle=False), 6))
    assert hardly == pytest.approx(clean, rel=0.1)


def test_a_long_transfer_has_the_rate_of_the_response_function() -> None:
    """Mathis et al., 1997: MSS / RTT sqrt(3 / 2p) for Reno, which cubic is at small windows; delayed acknowledgements
    do not slow Linux's growth. RFC 9438, section 5.2, gives cubic the same there, as beta makes up for alpha."""
    own = point({"loss": "1%"}, activation="4MiB", connections=1)
    rate_bps = 2 * 4 * 4 * 2**20 * 8 / np.mean([iteration_s(simulated(own, 1, repeat)) for repeat in range(3)])
    assert rate_bps == pytest.approx(1448 * 8 / 0.04 * (1.5 / 0.01) ** 0.5, rel=0.25)


def test_bbr_hardly_notices_what_halves_cubic() -> None:
    cubic, bbr = (iteration_s(simulated(point({"loss": "0.5%"}, congestion=each), 4)) for each in ("cubic", "bbr"))
    assert bbr < cubic / 5


def test_loss_slows_rings_over_the_wan_too() -> None:
    def all_reduce_s(wan: dict[str, str]) -> float:
        spans = simulated(point(wan, pipelines=2)).spans
        return float(np.max((spans.end_ns - spans.start_ns)[spans.kind == SPAN_KINDS.index("all_reduce")])) / 1e9

    assert all_reduce_s({}) < 0.5
    assert all_reduce_s({"loss": "1%"}) >= all_reduce_s({})


def test_an_ideal_transport_has_no_loss() -> None:
    lossy, clean = point({"loss": "1%"}, model="ideal"), point({}, model="ideal")
    found = [
        simulate_variant(each.topology, each.variants[0], 1, effects=IDEAL).spans.end_ns.tolist()
        for each in (lossy, clean)
    ]
    assert found[0] == found[1]


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 1000), st.sampled_from(["1ms", "5ms"]))
def test_a_small_message_is_late_by_no_more_than_the_jitter(seed: int, jitter: str) -> None:
    spans = simulated(point({"jitter": jitter}, activation="1KiB"), repeat=seed).spans
    receives = spans.kind == SPAN_KINDS.index("receive")
    assert (spans.end_ns - spans.start_ns)[receives].min() >= 0
    assert (spans.end_ns[receives].min()) >= 10_000_000 + 20_000_000 - int(jitter[0]) * 1_000_000

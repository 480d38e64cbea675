"""Simulations of links that change keep what holds for all simulations, and agree with those of constant links."""

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.runner.simulator.channels.changing_topologies import Changes, with_courses
from tests.runner.simulator.test_variant_simulation import documents
from tests.support.runner.small_experiment import sweep_point
from wanbed.runner.bound.lower_bound import lower_bounds
from wanbed.runner.resolve.tcp_effects import IDEAL, TcpEffects, effects_of
from wanbed.runner.simulator.simulation import KIND_CODES, Simulation
from wanbed.runner.simulator.variant_simulation import simulate_variant
from wanbed.testbed.network.topology import Topology

MS = 1_000_000
NEVER_NS = 10**15

ACTIVATION_ABOVE_ITS_WINDOW = {
    "topology": {
        "datacenters": [{"name": "dc0", "hosts": 2, "gpus_per_host": 1}],
        "intra": {"latency": "1ms", "rate": "unlimited"},
    },
    "model": {"hidden": 64, "context": 64},
    "compute": {"forward": "1ms", "backward": "1ms", "recompute": "0ms", "activation": "65KiB", "gradient": "1B"},
    "training": {"stages": 2, "pipelines": 1, "microbatches": 1, "iterations": 2, "warmup": 0},
    "variants": [{"name": "any", "schedule": "gpipe", "transport": {"connections": 1, "window": "64KiB"}}],
}


@st.composite
def changes(draw: st.DrawFn, *, down: bool = True) -> Changes:
    """Changes in the first two seconds, after which the link is as it was."""
    times = sorted(draw(st.sets(st.integers(1, 2000), min_size=1, max_size=5)))
    fields = st.fixed_dictionaries(
        {},
        optional={
            "latency_ns": st.sampled_from([0, 3 * MS, 30 * MS, 90 * MS]),
            "rate_bps": st.sampled_from([None, 15_000_000, 60_000_000]),
            "node_pair_rate_bps": st.sampled_from([None, 5_000_000, 70_000_000]),
            "up": st.just(not down),
        },
    )
    return [*((time_ms * MS, draw(fields)) for time_ms in times), (2001 * MS, {})]


def same(one: Simulation, other: Simulation) -> None:
    for column in ("rank", "kind", "start_ns", "end_ns", "size_bytes", "peer"):
        np.testing.assert_array_equal(getattr(one.spans, column), getattr(other.spans, column), column)


def simulated(document: dict[str, Any], change: Any, effects: TcpEffects | None = None, **options: Any) -> Simulation:
    point = sweep_point(document)
    return simulate_variant(change(point.topology), point.variants[0], 2, effects=effects, **options)


@settings(max_examples=25, deadline=None)
@given(documents(), st.sampled_from([IDEAL, TcpEffects()]))
def test_a_change_that_never_comes_changes_nothing(document: dict[str, Any], effects: TcpEffects) -> None:
    def later(topology: Topology) -> Topology:
        return with_courses(topology, [(NEVER_NS, {"latency_ns": 1})])

    same(simulated(document, lambda topology: topology, effects), simulated(document, later, effects))


@settings(max_examples=25, deadline=None)
@given(documents(), changes(), st.sampled_from([IDEAL, TcpEffects()]))
def test_equal_parts_see_the_same_course(document: dict[str, Any], course: Changes, effects: TcpEffects) -> None:
    def changing(topology: Topology) -> Topology:
        return with_courses(topology, course)

    whole = simulated(document, changing, effects, symmetry=False)
    same(simulated(document, changing, effects), whole)


@settings(max_examples=25, deadline=None)
@example(ACTIVATION_ABOVE_ITS_WINDOW, [(MS, {}), (2001 * MS, {})], "ideal")
@given(documents(), changes(), st.sampled_from(["mean", "ideal"]))
def test_every_byte_arrives_once_in_order_and_none_before_the_bound(
    document: dict[str, Any], course: Changes, model: str
) -> None:
    (written,) = document["variants"]
    left_out = {"connections", "window"} if model == "ideal" else {}
    transport = {name: value for name, value in written["transport"].items() if name not in left_out}
    changed = {"engine": "simulate", "variants": [{**written, "transport": {**transport, "model": model}}]}
    point = sweep_point({**document, **changed})
    (variant,) = point.variants
    effects = effects_of(variant.transport)
    topology = with_courses(point.topology, course)
    simulation = simulate_variant(topology, variant, 2, effects=effects)
    constant = simulate_variant(point.topology, variant, 2, effects=effects)
    spans = simulation.spans
    assert len(spans.rank) == len(constant.spans.rank)
    sent, received = (spans.kind == KIND_CODES[kind] for kind in ("send", "receive"))
    assert spans.size_bytes[sent].sum() == spans.size_bytes[received].sum()
    assert (spans.end_ns >= spans.start_ns).all()
    for now, before in zip(simulation.traffic, constant.traffic, strict=True):
        assert now.wire_bytes[-1:] == pytest.approx(before.wire_bytes[-1:], abs=64)
        assert (np.diff(now.wire_bytes) >= 0).all()
    bounds = lower_bounds(topology, variant, 2)
    if bounds is not None:
        assert min(end_ns - begin_ns for begin_ns, end_ns in simulation.windows_ns) >= bounds.makespan.time_ns
        assert simulation.windows_ns[-1][1] / 2 >= bounds.period.time_ns

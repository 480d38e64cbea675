"""An iteration of several flushes takes what its flushes take, and its all-reduces where they are summed."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.simulator.simulation_of import simulation_of
from wanbed.runner.simulator.simulation import KIND_CODES, Simulation
from wanbed.runner.simulator.variant_simulation import simulate_variant
from wanbed.runner.validation.case import chain, iteration_ns, simulated

MS = 1_000_000


TIMES = st.tuples(st.integers(1, 40), st.integers(1, 40), st.integers(1, 60), st.integers(0, 90))
"""The forward, the backward, the transfer and the latency, in ms."""
SENDING: list[dict[str, Any]] = [{}, {"overlap": False}, {"receive": "blocks"}]


def in_a_chain(
    times: tuple[int, int, int, int], training: dict[str, Any], variant: dict[str, Any], iterations: int = 1
) -> Simulation:
    """Simulate one pipeline whose stages are alike."""
    forward, backward, transfer, latency = times
    return simulated(
        simulate_variant,
        chain([latency * MS] * (training["stages"] - 1), **({"node_pair_rate": "1Gbit"} if transfer else {})),
        compute={
            "forward": f"{forward}ms",
            "backward": f"{backward}ms",
            "activation": f"{max(transfer * 125_000, 1)}B",
        },
        training=training,
        variant=variant,
        iterations=iterations,
    )


@given(TIMES, st.integers(2, 5), st.integers(1, 5), st.integers(2, 4))
@settings(max_examples=20, deadline=None)
def test_flushes_of_gpipe(times: tuple[int, int, int, int], stages: int, microbatches: int, flushes: int) -> None:
    forward, backward, _, latency = times
    training = {"stages": stages, "microbatches": microbatches, "accumulate": flushes}
    once_ms = (microbatches + stages - 1) * (forward + backward) + 2 * (stages - 1) * latency
    found = in_a_chain((forward, backward, 0, latency), training, {"schedule": "gpipe"})
    assert iteration_ns(found) == flushes * once_ms * MS


@given(
    TIMES,
    st.fixed_dictionaries({"stages": st.integers(2, 4), "microbatches": st.integers(1, 4)}),
    st.integers(2, 4),
    st.sampled_from(["gpipe", "1f1b", "zb-h1"]),
    st.sampled_from(SENDING),
)
@settings(max_examples=25, deadline=None)
def test_flushes_take_as_long_as_so_many_iterations_without_a_step_between(
    times: tuple[int, int, int, int], training: dict[str, int], flushes: int, schedule: str, transport: dict[str, Any]
) -> None:
    variant = {"schedule": schedule, "transport": transport}
    accumulated = in_a_chain(times, {**training, "accumulate": flushes}, variant)
    apart = in_a_chain(times, training, variant, flushes)
    assert iteration_ns(accumulated) == int(apart.spans.end_ns.max())


def document(schedule: str, training: dict[str, Any], **transport: Any) -> dict[str, Any]:
    return {
        "engine": "simulate",
        "topology": {
            "datacenters": [{"name": "a", "hosts": 4}, {"name": "b", "hosts": 4}],
            "intra": {"latency": "1ms", "rate": "1Gbit"},
            "wan": {"latency": "5ms", "node_pair_rate": "200Mbit", "rate": "300Mbit"},
        },
        "compute": {
            "forward": "30ms",
            "backward": "60ms",
            "optimizer": "9ms",
            "activation": "200KB",
            "gradient": "300KB",
        },
        "training": {"stages": 4, "pipelines": 2, "microbatches": 2, "iterations": 2, "warmup": 0, **training},
        "variants": [{"name": "v", "schedule": schedule, "transport": transport}],
    }


def spans_of(simulation: Simulation, rank: int, kind: str) -> list[tuple[int, int, int]]:
    """Iteration, start and end of a rank's spans of a kind."""
    spans = simulation.spans
    chosen = (spans.rank == rank) & (spans.kind == KIND_CODES[kind])
    return list(zip(*(each[chosen].tolist() for each in (spans.iteration, spans.start_ns, spans.end_ns)), strict=True))


@pytest.mark.parametrize(
    ("schedule", "transport"),
    [
        ("gpipe", {}),
        ("1f1b", {"model": "packets"}),
        ("varuna", {"sharing": "temporal"}),
        ("atlas", {"sharing": "temporal"}),
        ("zb-2p", {"sharing": "temporal"}),
        ("zb-h1", {"all_reduce": "butterfly"}),
    ],
)
@pytest.mark.parametrize("summed", ["once", "every flush"])
def test_replicas_sum_once_or_after_each_flush_and_step_once(
    schedule: str, transport: dict[str, Any], summed: str
) -> None:
    found = simulation_of(document(schedule, {"accumulate": 3, "summed": summed}, **transport), 2)
    for rank in range(8):
        sums = spans_of(found, rank, "all_reduce")
        assert [iteration for iteration, *_ in sums] == [0, 1] if summed == "once" else [0, 0, 0, 1, 1, 1]
        assert [iteration for iteration, *_ in spans_of(found, rank, "optimizer")] == [0, 1]
        forwards = spans_of(found, rank, "forward")
        assert len(forwards) == 2 * 3 * 2
        assert sorted({(iteration, number) for iteration, number in numbered(found, rank)}) == [
            (iteration, number) for iteration in range(2) for number in range(6)
        ]
        # Nothing is computed while replicas sum.
        computed = [each for kind in ("forward", "backward") for each in spans_of(found, rank, kind)]
        assert not any(start < end_ns and begin_ns < end for _, begin_ns, end_ns in sums for _, start, end in computed)


def numbered(simulation: Simulation, rank: int) -> list[tuple[int, int]]:
    spans = simulation.spans
    chosen = (spans.rank == rank) & (spans.kind == KIND_CODES["forward"])
    return list(zip(spans.iteration[chosen].tolist(), spans.microbatch[chosen].tolist(), strict=True))


def test_summing_every_flush_sends_as_many_times_the_gradients() -> None:
    def sent(summed: str) -> int:
        described = document("dp", {"stages": 1, "pipelines": 8, "accumulate": 3, "summed": summed})
        at = np.array([10**12])
        return sum(int(pair.sent_by(at)[0]) for pair in simulation_of(described, 2).traffic)

    # Each pair is rounded down to whole bytes.
    assert sent("every flush") == pytest.approx(3 * sent("once"), rel=1e-6)


def test_a_wait_for_all_stages_follows_the_last_flush() -> None:
    found = simulation_of(document("1f1b", {"accumulate": 2, "optimizer_waits": "all stages"}), 2)
    assert [iteration for iteration, *_ in spans_of(found, 0, "norm")] == [0, 1]


def test_an_overlapped_all_reduce_goes_beside_the_last_backward_of_the_last_flush() -> None:
    described = document("gpipe", {"accumulate": 2}, all_reduce_overlap=True, bucket="100KB")
    found = simulation_of(described, 1)
    for rank in range(8):
        backwards, sums = spans_of(found, rank, "backward"), spans_of(found, rank, "all_reduce")
        assert len(sums) == 3
        assert min(start for _, start, _ in sums) >= backwards[-1][1]

"""A GPU whose sends block starts nothing until its message has left it."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.runner.prefill_documents import point, with_prefill
from tests.support.simulator.simulation_of import simulation_of
from tests.support.simulator.stage_orders import stage_orders
from wanbed.runner.simulator.simulation import KIND_CODES, Simulation
from wanbed.runner.simulator.variant_simulation import simulate_variant
from wanbed.runner.validation.case import chain, iteration_ns, simulated
from wanbed.workloads.schedules.action import ActionKind

MS = 1_000_000
COMPUTING = [KIND_CODES[kind.value] for kind in ActionKind]
BLOCKING = {"overlap": False}
FORWARD_MS, BACKWARD_MS, TRANSFER_MS = 10, 20, 100


def chained(stages: int, microbatches: int, schedule: str, latency_ms: int = 0, **transport: Any) -> Simulation:
    return simulated(
        simulate_variant,
        chain([latency_ms * MS] * (stages - 1), node_pair_rate="1Gbit"),
        compute={"forward": f"{FORWARD_MS}ms", "backward": f"{BACKWARD_MS}ms", "activation": "12500000B"},
        training={"stages": stages, "microbatches": microbatches},
        variant={"schedule": schedule, "transport": transport},
    )


@pytest.mark.parametrize(
    ("stages", "schedule", "overlapping_ms", "blocking_ms"),
    [
        # F0 10, four transfers of 100, F3 10; then 20, four transfers of 100, 20. Blocking, each forward of stage 0 and
        # each backward of stage 1 takes 100 more.
        (2, "gpipe", 10 + 400 + 10 + 20 + 400 + 20, 4 * 110 + 10 + 4 * 120 + 20),
        # A step of 110 and one of 120 for each of 4 + 4 - 2 on the way there and back.
        (4, "gpipe", 10 + 400 + 10 + 2 * 110 + 20 + 400 + 20 + 2 * 120, 6 * 110 + 10 + 6 * 120 + 20),
        # (M + 1)(f + b + x). Overlapping, transfers of 100 ms each way follow each other: the third activation is sent
        # after the first backward, at 10 + 100 + 30 + 100 + 20 + 10.
        (2, "1f1b", 620, 5 * 130),
    ],
)
def test_a_send_keeps_its_gpu(stages: int, schedule: str, overlapping_ms: int, blocking_ms: int) -> None:
    assert iteration_ns(chained(stages, 4, schedule)) == overlapping_ms * MS
    assert iteration_ns(chained(stages, 4, schedule, **BLOCKING)) == blocking_ms * MS


def blocking_ms(schedule: str, stages: int, microbatches: int, times: Any, *, until_arrival: bool = False) -> int:
    """Return how long one pipeline takes, by asking the schedule of every stage in turn as messages come.

    ``times`` has the forward, the backward, the transfer of each stage, in either direction, and the latency.
    """
    forward, backward, transfer, latency = times
    lists = stage_orders(schedule, stages, microbatches)
    free, there, done = [0] * stages, {}, [0] * stages
    last = 0
    while any(count < len(own) for count, own in zip(done, lists, strict=True)):
        for stage, own in enumerate(lists):
            while done[stage] < len(own):
                action = own[done[stage]]
                goes = action.kind is ActionKind.FORWARD
                source = stage - 1 if goes else stage + 1
                needs = 0 <= source < stages
                key = (stage, goes, action.microbatch)
                if needs and key not in there:
                    break
                end = max(free[stage], there.get(key, 0)) + (forward if goes else backward)[stage]
                last = max(last, end)
                target = stage + 1 if goes else stage - 1
                if 0 <= target < stages:
                    end += transfer[min(stage, target)]
                    arrival = end + latency[min(stage, target)]
                    there[target, goes, action.microbatch] = arrival
                    end = arrival if until_arrival else end
                free[stage] = end
                done[stage] += 1
    return last


@given(
    st.sampled_from(["gpipe", "1f1b"]),
    st.integers(2, 4).flatmap(
        lambda stages: st.tuples(
            *[st.lists(st.integers(1, 60), min_size=stages, max_size=stages) for _ in range(2)],
            st.lists(st.integers(1, 60), min_size=stages - 1, max_size=stages - 1),
            st.lists(st.integers(0, 90), min_size=stages - 1, max_size=stages - 1),
        )
    ),
    st.integers(1, 6),
    st.booleans(),
)
@settings(max_examples=50, deadline=None)
def test_every_action_waits_for_the_send_before_it(
    schedule: str, times: Any, microbatches: int, until_arrival: bool
) -> None:
    forward, backward, transfer, latency = times
    simulation = simulated(
        simulate_variant,
        chain([each * MS for each in latency], node_pair_rate="1Gbit"),
        compute={
            "forward": [f"{each}ms" for each in forward],
            "backward": [f"{each}ms" for each in backward],
            "activation": [f"{each * 125_000}B" for each in transfer],
        },
        training={"stages": len(forward), "microbatches": microbatches},
        variant={"schedule": schedule, "transport": {**BLOCKING, "held_until": "arrival" if until_arrival else "left"}},
    )
    took_ms = blocking_ms(schedule, len(forward), microbatches, times, until_arrival=until_arrival)
    assert iteration_ns(simulation) == took_ms * MS


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1", "zb-v"])
@pytest.mark.parametrize("latency_ms", [1, 25, 80])
def test_latency_that_holds_a_gpu_is_as_long_on_the_line(schedule: str, latency_ms: int) -> None:
    virtual = {"virtual_stages": 2} if schedule == "zb-v" else {}

    def took_ns(latency: int, transfer: int, **transport: str) -> int:
        simulation = simulated(
            simulate_variant,
            chain([latency * MS] * 2, node_pair_rate="1Gbit"),
            compute={"forward": "12ms", "backward": "26ms", "backward_weight": "9ms"}
            | {"activation": f"{transfer * 125_000}B"},
            training={"stages": 3, "microbatches": 7, **virtual},
            variant={"schedule": schedule, "transport": {**BLOCKING, **transport}},
        )
        sends = simulation.spans.kind == KIND_CODES["send"]
        lengths_ns = simulation.spans.end_ns[sends] - simulation.spans.start_ns[sends]
        assert set(lengths_ns.tolist()) == {(latency if transport else 0) * MS + transfer * MS}
        return iteration_ns(simulation)

    assert took_ns(latency_ms, 30, held_until="arrival") == took_ns(0, 30 + latency_ms)
    assert took_ns(latency_ms, 30) < took_ns(latency_ms, 30, held_until="arrival")


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1", "varuna", "atlas"])
@pytest.mark.parametrize("sharing", ["none", "temporal"])
def test_nothing_is_computed_during_a_send(schedule: str, sharing: str) -> None:
    document = {
        "engine": "simulate",
        "topology": {
            "datacenters": [{"name": "a", "hosts": 4}, {"name": "b", "hosts": 4}],
            "intra": {"latency": "50us", "rate": "10Gbit"},
            "wan": {"latency": "5ms", "node_pair_rate": "200Mbit", "rate": "300Mbit"},
        },
        "compute": {"forward": "30ms", "backward": "60ms", "optimizer": "9ms", "activation": "1MB", "gradient": "3MB"},
        "training": {"stages": 4, "pipelines": 2, "microbatches": 4, "iterations": 2, "warmup": 0},
        "variants": [
            {"name": "v", "schedule": schedule, "transport": {"model": "mean", "sharing": sharing, **BLOCKING}}
        ],
    }
    spans = simulation_of(document, 2).spans
    kept = [*COMPUTING, *(KIND_CODES[kind] for kind in ("send", "all_reduce", "optimizer"))]
    for rank in range(8):
        chosen = (spans.rank == rank) & np.isin(spans.kind, kept)
        used = sorted(zip(spans.start_ns[chosen].tolist(), spans.end_ns[chosen].tolist(), strict=True))
        assert len(used) > 16
        assert all(one[1] <= following[0] for one, following in pairwise(used))


def test_prefill_may_use_a_gpu_that_sends_and_training_does_not_notice() -> None:
    variant = {"name": "any", "schedule": "1f1b", "transport": BLOCKING}
    beside, alone = (point(variants=[{**variant, "prefill": each}], **with_prefill()) for each in ("planned", "none"))
    with_it, without = (simulate_variant(each.topology, each.variants[0], 5) for each in (beside, alone))
    assert with_it.iteration_time_ns(1) == without.iteration_time_ns(1)
    spans = with_it.spans
    sends, prefills = (spans.kind == KIND_CODES[kind] for kind in ("send", "prefill"))
    during = [
        np.any((spans.start_ns[prefills] < end) & (spans.end_ns[prefills] > start) & (spans.rank[prefills] == rank))
        for rank, start, end in zip(spans.rank[sends], spans.start_ns[sends], spans.end_ns[sends], strict=True)
    ]
    assert any(during)

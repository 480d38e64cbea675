"""A message whose receiver blocks is sent only once its GPU has come to the receive and the sender knows that."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.simulator.simulation_of import simulation_of
from tests.support.simulator.stage_orders import stage_orders
from wanbed.runner.simulator.simulation import KIND_CODES, Simulation
from wanbed.runner.simulator.variant_simulation import simulate_variant
from wanbed.runner.validation.case import chain, iteration_ns, simulated
from wanbed.workloads.schedules.action import TAKES_GRADIENT, ActionKind

MS = 1_000_000
BLOCKING = {"receive": "blocks"}
RENDEZVOUS = {"receive": "blocks", "overlap": False}
SCHEDULES = ("gpipe", "1f1b", "zb-h1")

TIMES = st.integers(1, 60)
OF_TWO_STAGES = st.tuples(TIMES, TIMES, TIMES, st.integers(0, 90))
"""The forward, the backward, the transfer and the latency, in ms."""


def in_a_chain(
    times: Mapping[str, list[int]], microbatches: int, schedule: str, transport: Mapping[str, Any], **variant: Any
) -> Simulation:
    """Simulate one pipeline. ``times`` are those of each stage and of each boundary, in ms."""
    return simulated(
        simulate_variant,
        chain([each * MS for each in times["latency"]], node_pair_rate="1Gbit"),
        compute={
            "forward": [f"{each}ms" for each in times["forward"]],
            "backward": [f"{each}ms" for each in times["backward"]],
            "activation": [f"{each * 125_000}B" for each in times["transfer"]],
        },
        training={"stages": len(times["forward"]), "microbatches": microbatches},
        variant={"schedule": schedule, "transport": transport, **variant},
    )


def of_two_stages(forward: int, backward: int, transfer: int, latency: int) -> dict[str, list[int]]:
    return {"forward": [forward] * 2, "backward": [backward] * 2, "transfer": [transfer], "latency": [latency]}


@pytest.mark.parametrize("transport", [BLOCKING, RENDEZVOUS])
@given(OF_TWO_STAGES, st.integers(1, 6))
@settings(max_examples=15, deadline=None)
def test_gpipe_over_two_stages(transport: dict[str, Any], parts: tuple[int, ...], microbatches: int) -> None:
    forward, backward, transfer, latency = parts
    # Stage 1 asks for the first activation at 0, and stage 0 has made it after f. Each of the others is asked for when
    # the forward before it has ended: the request, the transfer, its latency and the forward follow each other. So do
    # those of the gradients, of which the first was asked for while stage 1 still computed forwards.
    steps = microbatches * (forward + backward + 2 * transfer + 2 * latency) + 2 * (microbatches - 1) * latency
    expected_ms = max(forward, latency) + steps + backward
    times = of_two_stages(*parts)
    assert iteration_ns(in_a_chain(times, microbatches, "gpipe", transport)) == expected_ms * MS


@given(OF_TWO_STAGES, st.integers(1, 6))
@settings(max_examples=15, deadline=None)
def test_one_forward_one_backward_over_two_stages(parts: tuple[int, ...], microbatches: int) -> None:
    forward, backward, transfer, latency = parts
    # Stage 1 asks, gets an activation, and computes forward and backward of it: 2c + x + f + b for each microbatch,
    # and c less for the first one, which waits for the first forward or for the request. What stage 0 does meanwhile
    # is shorter. The last gradient takes x + c, and its backward b.
    expected_ms = (
        max(forward, latency) + microbatches * (2 * latency + transfer + forward + backward) + transfer + backward
    )
    times = of_two_stages(*parts)
    assert iteration_ns(in_a_chain(times, microbatches, "1f1b", BLOCKING)) == expected_ms * MS


@given(OF_TWO_STAGES, st.integers(1, 6))
@settings(max_examples=10, deadline=None)
def test_one_microbatch_at_a_time_in_a_rendezvous(parts: tuple[int, ...], microbatches: int) -> None:
    forward, backward, transfer, latency = parts
    # With a warm-up of one, stage 0 is in the receive of the gradient before stage 1 has made it. Stage 1 asks for the
    # next activation once its gradient has left, while that is on its way to stage 0 and its backward follows.
    once_ms = 2 * transfer + 2 * latency + 2 * (forward + backward)
    expected_ms = max(forward, latency) - forward + microbatches * once_ms
    times = of_two_stages(*parts)
    found = in_a_chain(times, microbatches, "1f1b", RENDEZVOUS, options={"warmup_depth": 1})
    assert iteration_ns(found) == expected_ms * MS


def expected_end_ms(times: Mapping[str, list[int]], microbatches: int, schedule: str, *, holds: bool) -> int:
    """Return how long one pipeline takes, by its stages' lists. With ``holds`` sends block too."""
    forward, backward, transfer, latency = (times[each] for each in ("forward", "backward", "transfer", "latency"))
    stages = len(forward)
    lists = stage_orders(schedule, stages, microbatches)
    parts = {
        ActionKind.FORWARD: forward,
        ActionKind.BACKWARD: backward,
        ActionKind.BACKWARD_INPUT: [each // 2 for each in backward],
        ActionKind.BACKWARD_WEIGHT: [each - each // 2 for each in backward],
    }
    free: list[int | None] = [0] * stages
    made, done = {}, [0] * stages
    last, moved = 0, True
    while moved:
        moved = False
        for stage, own in enumerate(lists):
            while done[stage] < len(own) and (now := free[stage]) is not None:
                action = own[done[stage]]
                kind, goes = action.kind, action.kind is ActionKind.FORWARD
                source = stage - 1 if goes else stage + 1
                if 0 <= source < stages and (goes or kind in TAKES_GRADIENT):
                    if (stage, goes, action.microbatch) not in made:
                        break
                    boundary = min(stage, source)
                    asked = now + latency[boundary]
                    left = max(made[stage, goes, action.microbatch], asked) + transfer[boundary]
                    if holds:
                        free[source] = left
                    now = left + latency[boundary]
                now += parts[kind][stage]
                last, free[stage], moved = max(last, now), now, True
                done[stage] += 1
                target = stage + 1 if goes else stage - 1
                if 0 <= target < stages and kind is not ActionKind.BACKWARD_WEIGHT:
                    made[target, goes, action.microbatch] = now
                    free[stage] = None if holds else now
    assert done == [len(own) for own in lists]
    return last


@st.composite
def chains(draw: st.DrawFn) -> dict[str, list[int]]:
    stages = draw(st.integers(2, 4))
    of_stages = st.lists(TIMES, min_size=stages, max_size=stages)
    of_boundaries = st.lists(TIMES, min_size=stages - 1, max_size=stages - 1)
    latencies = st.lists(st.integers(0, 90), min_size=stages - 1, max_size=stages - 1)
    # An even backward has two equal halves where it is split.
    backward = [2 * each for each in draw(of_stages)]
    return {
        "forward": draw(of_stages),
        "backward": backward,
        "transfer": draw(of_boundaries),
        "latency": draw(latencies),
    }


@given(chains(), st.integers(1, 6), st.sampled_from([*((each, False) for each in SCHEDULES), ("gpipe", True)]))
@settings(max_examples=40, deadline=None)
def test_every_receive_is_asked_for_when_its_turn_has_come(
    times: dict[str, list[int]], microbatches: int, chosen: tuple[str, bool]
) -> None:
    schedule, holds = chosen
    found = in_a_chain(times, microbatches, schedule, RENDEZVOUS if holds else BLOCKING)
    assert iteration_ns(found) == expected_end_ms(times, microbatches, schedule, holds=holds) * MS


@given(chains(), st.integers(1, 6), st.sampled_from(SCHEDULES), st.booleans())
@settings(max_examples=25, deadline=None)
def test_it_is_never_faster_than_buffers_and_sends_as_many_bytes(
    times: dict[str, list[int]], microbatches: int, schedule: str, overlap: bool
) -> None:
    overlap = overlap or schedule != "gpipe"
    blocks = in_a_chain(times, microbatches, schedule, {**BLOCKING, "overlap": overlap})
    buffers = in_a_chain(times, microbatches, schedule, {"overlap": overlap})
    assert iteration_ns(blocks) >= iteration_ns(buffers)
    at = np.array([10**12])
    assert [int(pair.sent_by(at)[0]) for pair in blocks.traffic] == [
        int(pair.sent_by(at)[0]) for pair in buffers.traffic
    ]


def document(**variant: Any) -> dict[str, Any]:
    return {
        "topology": {
            "datacenters": [{"name": "a", "hosts": 4}, {"name": "b", "hosts": 4}],
            "intra": {"latency": "50us", "rate": "10Gbit"},
            "wan": {"latency": "5ms", "node_pair_rate": "200Mbit", "rate": "300Mbit"},
        },
        "compute": {"forward": "30ms", "backward": "60ms", "optimizer": "9ms", "activation": "1MB", "gradient": "3MB"},
        "training": {"stages": 4, "pipelines": 2, "microbatches": 4, "iterations": 2, "warmup": 0},
        "variants": [{"name": "v", **variant}],
    }


@pytest.mark.parametrize(
    ("schedule", "training", "sharing", "boundaries"),
    [
        ("gpipe", {}, "none", 3),
        ("gpipe", {}, "temporal", 3),
        ("1f1b", {}, "none", 3),
        ("1f1b", {}, "temporal", 3),
        ("eager-1f1b", {}, "none", 3),
        ("zb-h1", {}, "none", 3),
        ("1f1b", {"optimizer_waits": "all stages"}, "none", 3),
        ("interleaved-1f1b", {"virtual_stages": 2}, "none", 7),
        # Two of the virtual stages in the middle are one stage's.
        ("zb-v", {"virtual_stages": 2}, "none", 6),
    ],
)
def test_nothing_is_computed_while_a_message_comes(
    schedule: str, training: dict[str, Any], sharing: str, boundaries: int
) -> None:
    described = document(schedule=schedule, training=training, transport={**BLOCKING, "sharing": sharing})
    spans = simulation_of(described, 2).spans
    kept = [*(KIND_CODES[kind.value] for kind in ActionKind), KIND_CODES["receive"], KIND_CODES["optimizer"]]
    receives = 0
    for rank in range(8):
        chosen = (spans.rank == rank) & np.isin(spans.kind, kept)
        receives += int(np.sum(spans.kind[chosen] == KIND_CODES["receive"]))
        used = sorted(zip(spans.start_ns[chosen].tolist(), spans.end_ns[chosen].tolist(), strict=True))
        assert all(one[1] <= following[0] for one, following in pairwise(used))
    assert receives == 2 * 2 * 4 * 2 * boundaries


def test_it_changes_nothing_where_nothing_is_sent_between_stages() -> None:
    training = {"stages": 1, "pipelines": 8, "microbatches": 1}
    blocks, buffers = (
        simulation_of(
            {"engine": "simulate", **document(schedule="dp", training=training, transport=transport)}, 2
        ).spans
        for transport in (BLOCKING, {"model": "mean"})
    )
    assert (blocks.end_ns == buffers.end_ns).all()

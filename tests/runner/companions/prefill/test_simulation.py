"""Prefill beside simulated training, and the effect of each on the other."""

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tests.support.present import present
from tests.support.runner.prefill_documents import point, with_prefill
from wanbed.flow.line import Line
from wanbed.ground.errors import SimulationError
from wanbed.results.records.span_columns import SpanColumns
from wanbed.results.records.span_log import COMPUTE_KINDS, NO_REQUEST, PREFILL
from wanbed.runner.companions.prefill.simulation import PrefillSimulation
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.simulator.simulation import KIND_CODES, SimulatedPrefill, Simulation
from wanbed.runner.simulator.variant_simulation import simulate_variant
from wanbed.workloads.bubbletea.request import Outcome, count_outcomes
from wanbed.workloads.bubbletea.service_config import ServiceConfig
from wanbed.workloads.schedules.action import Action, ActionKind
from wanbed.workloads.schedules.gpipe import GPipe

BUSY = [KIND_CODES[kind] for kind in (*COMPUTE_KINDS, PREFILL)]


def simulated(of: SweepPoint) -> tuple[Simulation, SimulatedPrefill]:
    simulation = simulate_variant(of.topology, of.variants[0], of.spec.training.iterations)
    return simulation, present(simulation.prefill)


def simulated_alone() -> Simulation:
    of = point(**variant(prefill="none"))
    return simulate_variant(of.topology, of.variants[0], of.spec.training.iterations)


def variant(**fields: Any) -> dict[str, Any]:
    return {"variants": [{"name": "any", "schedule": "1f1b", **fields}]}


def training_rows(spans: SpanColumns) -> list[tuple[int, ...]]:
    own = spans.kind != KIND_CODES[PREFILL]
    columns = (spans.rank, spans.kind, spans.iteration, spans.microbatch, spans.start_ns, spans.end_ns, spans.peer)
    return sorted(zip(*(column[own].tolist() for column in columns), strict=True))


@pytest.mark.parametrize("policy", ["planned", "greedy"])
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_a_gpu_does_one_thing_at_a_time(policy: str, depth: int) -> None:
    simulation, _ = simulated(point(**variant(prefill=policy), **with_prefill(depth=depth)))
    spans = simulation.spans
    for rank in range(8):
        own = np.isin(spans.kind, BUSY) & (spans.rank == rank)
        busy = sorted(zip(spans.start_ns[own].tolist(), spans.end_ns[own].tolist(), strict=True))
        assert all(one[1] <= following[0] for one, following in pairwise(busy))
        assert (spans.kind[own] == KIND_CODES[PREFILL]).any()


def test_training_does_the_same_to_the_nanosecond_beside_planned_prefill() -> None:
    simulation, prefill = simulated(point())
    assert training_rows(simulation.spans) == training_rows(simulated_alone().spans)
    assert prefill.deadline_overruns == prefill.overrun_ns == 0
    assert simulation.utilization(8, 4, with_prefill=True) > simulation.utilization(8, 4) + 0.2


def test_training_waits_for_greedy_prefill_and_every_wait_is_counted() -> None:
    simulation, prefill = simulated(point(**variant(prefill="greedy")))
    assert simulation.iteration_time_ns(4) > simulated_alone().iteration_time_ns(4)
    assert prefill.deadline_overruns > 0
    assert 0 < prefill.overrun_ns / prefill.deadline_overruns <= 1_500_000


def test_every_request_that_came_is_reported_once_and_what_moved_was_prefilled_before() -> None:
    _, prefill = simulated(point())
    records = prefill.records
    assert sorted(record.number for record in records) == list(range(len(records)))
    assert prefill.output_tokens.keys() == {record.number for record in records}
    moved = [record for record in records if record.kv_moved_ns is not None]
    assert len(moved) > 50
    for record in moved:
        later = (record.started_ns, record.prefilled_ns, record.kv_moved_ns)
        in_order = [record.arrival_ns - 1, *map(present, (record.admitted_ns, *later))]
        assert all(one < other for one, other in pairwise(in_order))
    counts = count_outcomes(records, 2 * 10**9)
    assert counts["admitted"] + counts["held"] + counts["rejected_slo"] == len(records)


def test_each_layer_of_a_prompt_is_computed_once() -> None:
    of = point(**with_prefill(chunk=128))
    simulation, prefill = simulated(of)
    service, spans = present(of.variants[0].service), simulation.spans
    one_prompt_ns = sum(service.profile.chunk_ns(1, 128, prior) for prior in (0, 128, 256, 384)) * service.model.layers
    took_ns: Counter[int] = Counter()
    own = spans.kind == KIND_CODES[PREFILL]
    lengths = (spans.end_ns[own] - spans.start_ns[own]).tolist()
    for request, length_ns in zip(spans.request[own].tolist(), lengths, strict=True):
        took_ns[request] += length_ns
    done = [record.number for record in prefill.records if record.prefilled_ns is not None]
    assert done
    assert {took_ns[number] for number in done} == {one_prompt_ns}


def test_only_spans_of_prefill_belong_to_a_request() -> None:
    spans = simulated(point())[0].spans
    of_prefill = spans.kind == KIND_CODES[PREFILL]
    assert (spans.request[~of_prefill] == NO_REQUEST).all()
    assert (spans.request[of_prefill] >= 0).all()
    order = np.lexsort((spans.end_ns, spans.start_ns, spans.iteration, spans.rank))
    assert (order == np.arange(len(order))).all()


def test_a_pool_prefills_from_the_beginning_and_training_does_not_notice() -> None:
    simulation, prefill = simulated(point(**variant(prefill="none", pool=4)))
    spans = simulation.spans
    of_prefill = spans.kind == KIND_CODES[PREFILL]
    assert set(spans.rank[of_prefill].tolist()) == {8, 9, 10, 11}
    assert {record.outcome for record in prefill.records} == {Outcome.OFF_LOADED}
    assert prefill.margins_ns == ()


def test_a_pool_takes_what_the_bubbles_do_not() -> None:
    _, prefill = simulated(point(**variant(pool=4), **with_prefill(rate="100/s")))
    counts = count_outcomes(prefill.records, 2 * 10**9)
    assert min(counts["admitted"], counts["off_loaded"]) > 0


def test_the_same_input_gives_the_same_to_the_byte() -> None:
    (one, first), (other, second) = simulated(point()), simulated(point())
    assert first == second
    assert all((getattr(one.spans, name) == getattr(other.spans, name)).all() for name in vars(one.spans))


@pytest.mark.parametrize(("schedule", "first"), [("atlas", 0), ("1f1b", 1)])
def test_a_plan_predicts_bubbles_before_the_first_iteration(schedule: str, first: int) -> None:
    transport = {"model": "ideal", "connections": "auto", "sharing": "temporal"}
    variants = [{"name": "any", "schedule": schedule, "transport": transport}]
    spans = simulated(point(variants=variants, **with_prefill(warmup=0)))[0].spans
    assert spans.iteration[spans.kind == KIND_CODES[PREFILL]].min() == first


def test_a_slower_network_moves_caches_later() -> None:
    topology = {**point().spec.document()["topology"]}
    slow = {**topology, "intra": {"latency": "50us", "rate": "500Mbit"}}
    ttfts = []
    for each in (topology, slow):
        _, prefill = simulated(point(topology=each))
        waits = [
            record.kv_moved_ns - record.prefilled_ns
            for record in prefill.records
            if record.kv_moved_ns is not None and record.prefilled_ns is not None
        ]
        ttfts.append(float(np.median(waits)))
    assert ttfts[1] > 2 * ttfts[0]


def test_ten_thousand_requests_in_a_second_are_held_or_rejected_and_training_goes_on() -> None:
    # By the mean, iterations are alike, and bubbles as long as those before.
    of = point(
        **with_prefill(rate="10000/s"),
        training={"stages": 4, "pipelines": 2, "microbatches": 4, "iterations": 6},
        variants=[{"name": "planned", "schedule": "1f1b", "transport": {"model": "mean"}}],
    )
    _, prefill = simulated(of)
    counts = count_outcomes(prefill.records, 2 * 10**9)
    assert sum(counts[name] for name in counts if name.startswith(("admitted", "held", "rejected"))) == len(
        prefill.records
    )
    assert len(prefill.records) > 10_000
    assert counts["held"] <= 2 * 256
    assert counts["rejected_hold_full"] > 9_000
    assert prefill.deadline_overruns == 0


def test_a_schedule_that_deadlocks_is_seen_though_requests_still_come() -> None:
    of = point(**variant())
    vars(of.variants[0])["schedule"] = f"{__name__}:Stubborn"
    with pytest.raises(SimulationError, match=r"^Stubborn deadlocks"):
        simulated(of)


class Stubborn(GPipe):
    """GPipe that never runs the last microbatch's backward at its last stage."""

    def choose(self, stage: int) -> Action | None:
        action = super().choose(stage)
        return None if stage == 3 and action == Action(ActionKind.BACKWARD, 3) else action


def pool_service(**prefill: Any) -> tuple[PrefillSimulation, ServiceConfig]:
    """A service on a pool of one GPU a datacenter, over 10 Gbit/s and 50 us."""
    service = present(point(**variant(prefill="none", pool=2), **with_prefill(**prefill)).variants[0].service)
    return PrefillSimulation(service, LINE, {}), service


LATENCY_NS = 50_000
LINE = Line(10**10, LATENCY_NS, headers=False)


def ended(at_ns: int, **prefill: Any) -> tuple[list[list[int]], SimulatedPrefill]:
    """What such a service has done by a time: for each stretch of prefill its eight numbers and the request."""
    simulation, _ = pool_service(**prefill)
    while simulation.next_ns is not None and simulation.next_ns <= at_ns:
        simulation.handle_next_instant()
    found = simulation.end(at_ns)
    return np.frombuffer(found.rows, np.int64).reshape(-1, 9).tolist(), found


def test_a_layer_under_way_at_the_end_does_not_count() -> None:
    (first, *_), _ = ended(2 * 10**9, depth=1, rate="5/s")
    start_ns, end_ns, request = first[4], first[5], first[8]
    _, service = pool_service(depth=1, rate="5/s")
    layer_ns, rest_ns = divmod(end_ns - start_ns, service.model.layers)
    assert rest_ns == 0
    for layers in (0, 1, 31):
        for past_ns in (0, layer_ns - 1):
            rows, _ = ended(start_ns + layers * layer_ns + past_ns, depth=1, rate="5/s")
            assert [row[4:6] for row in rows if row[8] == request] == (
                [[start_ns, start_ns + layers * layer_ns]] if layers else []
            )


def test_a_cache_has_moved_a_transfer_and_a_report_after_its_prompt_was_prefilled() -> None:
    rows, found = ended(3 * 10**9, depth=1, rate="5/s")
    _, service = pool_service(depth=1, rate="5/s")
    ends = {row[8]: row[5] for row in rows}
    took_ns = set()
    for record in found.records:
        if record.kv_moved_ns is None or record.prefilled_ns is None:
            continue
        assert record.prefilled_ns == ends[record.number]
        tokens = record.prompt_tokens
        moves_ns = LATENCY_NS + LINE.duration_ns(service.kv_sent_bytes(service.model.layers, tokens))
        moved_ns = record.kv_moved_ns - ends[record.number] - LATENCY_NS
        # The decode host is another one, or the one that prefilled.
        assert moved_ns in {moves_ns, 0}
        took_ns.add(moved_ns)
    assert len(took_ns) > 1


def test_a_prompt_goes_from_stage_to_stage_as_fast_as_its_activations_and_its_cache_follows() -> None:
    rows, found = ended(4 * 10**9, rate="2/s")
    # 128 B and 2 KiB of each of 512 tokens at 10 Gbit/s; a stage has half of a cache.
    activation_ns, half_ns = 52_429, 419_431
    stages = {gpu: {row[8]: row[4:6] for row in rows if row[0] == gpu} for gpu in (8, 9)}
    moved_ns = set()
    for record in found.records:
        if record.number not in stages[9]:
            continue
        (first_ns, passed_ns), (second_ns, prefilled_ns) = (stages[gpu][record.number] for gpu in (8, 9))
        if first_ns == record.arrival_ns + LATENCY_NS:
            assert second_ns == passed_ns + LATENCY_NS + activation_ns
        if record.kv_moved_ns is not None:
            moved_ns.add(record.kv_moved_ns - prefilled_ns)
    assert len(stages[9]) > 3
    # A report, and before it the last half where another host decodes.
    assert moved_ns == {LATENCY_NS, 2 * LATENCY_NS + half_ns}

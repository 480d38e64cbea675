"""Atlas on cells whose times are known: what sharing and the plan give, and what they cannot give.

The reference cell is an expectation of arithmetic, without TCP: 6 stages, two in each of three datacenters,
2 pipelines, 16 microbatches, a 32 MiB activation over 5 Gbit/s and 40 ms.
"""

from dataclasses import replace

import pytest

from wanbed.workloads.message import Message, MessageKind
from wanbed.workloads.schedules.action import ActionKind
from wanbed.workloads.schedules.atlas import Atlas
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.schedules.planning.cell_plan import BoundaryCosts, CellCosts

MS = 1_000_000
TRANSFER_NS = 53_687_091
"""32 MiB at 5 Gbit/s."""


def reference_cell(forward_ns: int, *, sharing: bool, memory_bound: int | None = None) -> CellCosts:
    inside = BoundaryCosts(50_000, TRANSFER_NS // 20, shared=False)
    across = BoundaryCosts(40 * MS, TRANSFER_NS // 2 if sharing else TRANSFER_NS, shared=sharing)
    return CellCosts(
        PipelineShape(6, 16, recompute=True, memory_bound=memory_bound),
        pipelines=2,
        forward_ns=(forward_ns,) * 6,
        backward_ns=(2 * forward_ns,) * 6,
        recompute_ns=(forward_ns,) * 6,
        boundaries=(inside, across, inside, across, inside),
    )


def shortest_conceivable_ns(cell: CellCosts) -> int:
    """All of one stage's work, and one microbatch's way to that stage and back from it."""
    way_ns, longest = 0, 0
    for stage in range(cell.shape.stages):
        last = stage == cell.shape.stages - 1
        once = cell.forward_ns[stage] + cell.backward_ns[stage] + (0 if last else cell.recompute_ns[stage])
        longest = max(longest, way_ns + cell.shape.microbatches * once)
        if not last:
            boundary = cell.boundaries[stage]
            one_way_ns = boundary.occupancy_ns + boundary.latency_ns
            way_ns += cell.forward_ns[stage] + cell.backward_ns[stage] + 2 * one_way_ns
    return longest


@pytest.mark.parametrize("forward_ms", [21, 23, 25])
@pytest.mark.parametrize("sharing", [False, True])
def test_the_reference_cell_is_within_a_few_percent_of_the_bound(forward_ms, sharing, varuna_ns) -> None:
    cell = reference_cell(forward_ms * MS, sharing=sharing)
    planned_ns, least_ns = Atlas.plan(cell, split="never").makespan_ns, shortest_conceivable_ns(cell)
    print(
        f"forward {forward_ms} ms, sharing {sharing}: atlas {planned_ns / 1e9:.3f} s, "
        f"varuna {varuna_ns(cell) / 1e9:.3f} s, no less than {least_ns / 1e9:.3f} s"
    )
    assert least_ns <= planned_ns <= 1.03 * least_ns


def test_the_reference_cell_takes_what_the_event_sketch_expects(varuna_ns) -> None:
    unshared, shared = (reference_cell(23 * MS, sharing=sharing) for sharing in (False, True))
    assert varuna_ns(unshared) / 1e9 == pytest.approx(2.2, abs=0.05)
    assert Atlas.plan(shared, split="never").makespan_ns / 1e9 == pytest.approx(2.1, abs=0.05)


@pytest.mark.parametrize("memory_bound", [None, 6, 8, 12])
@pytest.mark.parametrize("sharing", [False, True])
def test_the_published_plan_is_never_slower_than_varuna_over_the_same_links(memory_bound, sharing, varuna_ns) -> None:
    for forward_ms in (10, 21, 40):
        cell = reference_cell(forward_ms * MS, sharing=sharing, memory_bound=memory_bound)
        assert Atlas.plan(cell, split="never").makespan_ns <= varuna_ns(cell)


def test_sharing_is_faster_where_transfers_take_long() -> None:
    plans = [Atlas.plan(reference_cell(21 * MS, sharing=sharing)) for sharing in (True, False)]
    assert plans[0].makespan_ns < plans[1].makespan_ns


@pytest.mark.parametrize(("shared", "arrivals_ms"), [(True, [100, 200, 300, 400]), (False, [400] * 4)])
def test_first_microbatches_of_four_pipelines_arrive_one_after_the_other_when_shared(
    shared: bool, arrivals_ms: list[int], run_plan
) -> None:
    boundary = BoundaryCosts(0, (100 if shared else 400) * MS, shared=shared)
    cell = CellCosts(PipelineShape(2, 3), 4, (0, 0), (0, 0), (0, 0), (boundary,))
    runs = run_plan(cell, Atlas.plan(cell))
    first = (1, Message(MessageKind.ACTIVATION, 0))
    assert [run.arrivals[first] for run in runs] == [at * MS for at in arrivals_ms]


def test_planned_turns_are_shorter_than_first_come_where_links_are_busy() -> None:
    inside, across = BoundaryCosts(50_000, 3 * MS, shared=False), BoundaryCosts(40 * MS, 21 * MS, shared=True)
    times = (21 * MS,) * 6
    cell = CellCosts(
        PipelineShape(6, 16, recompute=True), 4, times, (42 * MS,) * 6, times, (inside, across, inside, across, inside)
    )
    rules = ("first-come", "microbatch", "starving")
    by_rule = {rule: Atlas.plan(cell, turns=rule, split="never").makespan_ns for rule in rules}
    print({rule: makespan_ns / 1e9 for rule, makespan_ns in by_rule.items()})
    assert Atlas.plan(cell, split="never").makespan_ns == min(by_rule.values()) < by_rule["first-come"]


@pytest.mark.parametrize("memory_bound", [None, 4])
def test_splitting_where_it_is_shorter_is_never_longer_than_either(memory_bound: int | None) -> None:
    cell = reference_cell(21 * MS, sharing=True, memory_bound=memory_bound)
    never, always, auto = (Atlas.plan(cell, split=split).period_ns for split in ("never", "always", "auto"))
    assert auto == min(never, always)
    assert Atlas.plan(cell).period_ns == auto


def test_a_split_plan_takes_a_tenth_less_where_every_stage_waits_for_its_gradient() -> None:
    cell = reference_cell(21 * MS, sharing=True)
    assert Atlas.plan(cell).period_ns < 0.9 * Atlas.plan(cell, split="never").period_ns


def test_backwards_stay_whole_where_their_parts_take_longer() -> None:
    cell = reference_cell(21 * MS, sharing=True)
    slower = replace(cell, backward_input_ns=(42 * MS,) * 6, backward_weight_ns=(42 * MS,) * 6)
    assert Atlas.plan(slower) == Atlas.plan(slower, split="never")


@pytest.mark.parametrize("split", ["never", "always"])
def test_a_stage_runs_the_actions_that_its_plan_has(split: str) -> None:
    cell = reference_cell(21 * MS, sharing=True)
    schedule = Atlas.of_plan(cell.shape, Atlas.plan(cell, split=split), 1)
    parts = (ActionKind.BACKWARD_INPUT, ActionKind.BACKWARD_WEIGHT) if split == "always" else (ActionKind.BACKWARD,)
    assert schedule.kinds(0) == (ActionKind.FORWARD, ActionKind.RECOMPUTE, *parts)
    assert schedule.kinds(5) == (ActionKind.FORWARD, *parts)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"turns": "random"}, "turns: 'random' is no rule, take one of first-come, microbatch, starving"),
        ({"depth": 3}, "depth: atlas has no such option, it has turns and split"),
        ({"split": "sometimes"}, "split: 'sometimes' is none of never, always, auto"),
        ({"split": ["auto"]}, r"split: \['auto'\] is none of never, always, auto"),
    ],
)
def test_other_options_are_refused(options: dict[str, object], line: str) -> None:
    with pytest.raises(ValueError, match=f"^{line}"):
        Atlas.plan(reference_cell(MS, sharing=True), **options)

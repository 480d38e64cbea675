"""Facts of a trial that every engine records alike, as they stand in ``trial.json``."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from wanbed.results.records.documents import TIMES_DRAWN
from wanbed.runner.bound.lower_bound import lower_bounds
from wanbed.runner.resolve.cell_costs import cell_costs
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.resolve.resolved_variant import BackgroundFlow, ResolvedVariant
from wanbed.runner.runs.caveats import cuts_of
from wanbed.runner.trainings.local_updates.resolution import LocalUpdatesVariant
from wanbed.testbed.network.price_list import PriceList
from wanbed.testbed.network.topology import Topology
from wanbed.workloads.schedules.action import Action
from wanbed.workloads.schedules.planning.cell_plan import CellCosts, CellPlan
from wanbed.workloads.schedules.planning.plan_run import PlanRun, priced


@dataclass(frozen=True)
class TrialCourse:
    """The course that a trial took on its engine.

    ``connections`` counts those of each node pair. ``sums`` has for each average over a star how many parts it is of,
    and how many of these were meant for an earlier one; ``dropped`` is how many parts came too late for any.
    ``while_all_ran_ns`` is when the first of several jobs had done its last iteration, on the trial's time line.
    ``varies`` is whether another repeat may end otherwise. With ``computes`` the time of computation is not known
    beforehand.
    """

    iterations: int
    warmup: int
    tokens_per_iteration: int | None
    dilation: float
    connections: Mapping[tuple[str, str], int]
    sums: Collection[tuple[int, int]]
    dropped: int
    while_all_ran_ns: int | None
    varies: bool
    computes: bool = False


def trial_facts(topology: Topology, variant: ResolvedVariant, course: TrialCourse) -> dict[str, Any]:
    """Return the facts of a trial of that variant: what it trained, how it was planned, and what bounds its time."""
    return {
        "warmup_iterations": course.warmup,
        "tokens_per_iteration": course.tokens_per_iteration,
        "dilation": course.dilation,
        "connections": [[*hosts, count] for hosts, count in course.connections.items()],
        **cut_facts(topology, variant),
        **({"sends_block": True} if variant.sends_block else {}),
        **_pipeline_facts(topology, variant),
        **averages_facts(course.sums, course.dropped),
        **_bounds(topology, variant, course),
        **({TIMES_DRAWN: True} if course.varies else {}),
        **_beside(variant, course.while_all_ran_ns),
        **background_facts(variant.background),
        **price_facts(topology.prices, variant, course.iterations),
    }


def price_facts(prices: PriceList | None, variant: ResolvedVariant, iterations: int) -> dict[str, Any]:
    """Return the entry on what the trial's GPUs and sent bytes cost, empty without prices."""
    if prices is None:
        return {}
    return {
        "prices": {
            "gpus_usd_per_h": prices.gpus_usd_per_h(variant.placement.gpus_by_datacenter),
            "egress_usd_per_gb": [[*ends, usd] for ends, usd in prices.egress_usd_per_gb],
            "iterations": iterations,
        }
    }


def averages_facts(sums: Collection[tuple[int, int]], dropped: int) -> dict[str, Any]:
    """Return the entry on averages over a star, empty where there are none; the arguments are those of a course."""
    if not sums:
        return {}
    parts = [each for each, _ in sums]
    return {
        "averages": {
            "sums": len(parts),
            "fewest_parts": min(parts),
            "most_parts": max(parts),
            "late_parts": sum(late for _, late in sums),
            "dropped_parts": dropped,
        }
    }


def background_facts(flows: Sequence[BackgroundFlow]) -> dict[str, Any]:
    """Return the entry on flows in the background, empty where there are none."""
    return {"background": [flow.document() for flow in flows]} if flows else {}


def cut_facts(topology: Topology, variant: ResolvedVariant) -> dict[str, Any]:
    """Return the limited node pairs as an entry of a trial's facts; {} if there are none."""
    cuts = [[*cut.hosts, cut.wanted, round(cut.carried, 4)] for cut in cuts_of(topology, variant)]
    return {"connections_cut": cuts} if cuts else {}


def _pipeline_facts(topology: Topology, variant: ResolvedVariant) -> dict[str, Any]:
    """Return how pipelines share links and sum gradients, and their plan.

    ``all_reduce_wan_ratio`` is by stage the bytes over the WAN for each byte that a replica sums. A trace and a program
    have collectives of their own, and no plan.
    """
    if not isinstance(variant, PipelineVariant):
        return {"pipelines_per_cell": 1, "planned_makespan_s": None}
    seldom = asdict(variant.synchronization) if isinstance(variant, LocalUpdatesVariant) else None
    return {
        "pipelines_per_cell": variant.pipelines_per_cell,
        **({"synchronization": seldom} if seldom else {}),
        **({} if variant.encoded is None else {"activation": variant.encoded.document()}),
        "all_reduce_wan_ratio": [variant.wan_ratio(stage) for stage in range(variant.placement.stages)],
        **_plan_facts(topology, variant),
    }


def _whole_ns(plan: CellPlan, variant: PipelineVariant) -> int:
    """Return the makespan of an iteration whose flushes follow the plan, one a period after the other."""
    return (variant.flushes - 1) * plan.period_ns + plan.makespan_ns


def _plan_facts(topology: Topology, variant: PipelineVariant) -> dict[str, Any]:
    """Return a trial's facts about the plan of a variant.

    ``planned_makespan_s`` is null, and the only fact, if the schedule is not planned. ``by_rates_s`` is the
    makespan of the same plan if every transfer took its size / rate. ``computing_s`` is the compute time of each
    stage's GPU in an iteration. ``transfer_s`` is the mean transfer time over each boundary, from the first byte sent
    to the last byte received.
    """
    plan = variant.plan
    if plan is None:
        return {"planned_makespan_s": None}
    facts: dict[str, Any] = {"planned_makespan_s": _whole_ns(plan, variant) / 1e9}
    costs = cell_costs(topology, variant)
    run = PlanRun(plan, costs)
    try:
        run.iterate()
        run.iterate()
        by_rates_ns = _whole_ns(priced(plan, _without_memory(costs)), variant)
    except ValueError:
        # Training deadlocks with such a plan of a foreign schedule, and its error message has more detail.
        return facts
    boundaries = range(len(costs.boundaries))
    return facts | {
        "plan": {
            "by_rates_s": by_rates_ns / 1e9,
            "computing_s": [
                variant.flushes * _computing_ns(costs, stage, order) / 1e9 for stage, order in enumerate(plan.orders[0])
            ],
            "transfer_s": [_mean(run.transfers_ns(boundary)) / 1e9 for boundary in boundaries],
        }
    }


def _computing_ns(costs: CellCosts, stage: int, order: Sequence[Action]) -> int:
    durations = costs.durations_ns
    return sum(durations[action.kind][stage] for action in order)


def _without_memory(costs: CellCosts) -> CellCosts:
    return replace(costs, boundaries=tuple(replace(boundary, links=None) for boundary in costs.boundaries))


def _mean(values: Sequence[int]) -> float:
    return sum(values) / len(values) if values else 0.0


def _bounds(topology: Topology, variant: ResolvedVariant, course: TrialCourse) -> dict[str, Any]:
    """Return the lower bounds of the trial's iterations, each with the part that decides it; null where none is known.

    How long real computation takes is not known beforehand.
    """
    bounds = None if course.computes else lower_bounds(topology, variant, course.iterations)
    return {
        "period_bound": None if bounds is None else asdict(bounds.period),
        "makespan_bound": None if bounds is None else asdict(bounds.makespan),
    }


def _beside(variant: ResolvedVariant, while_all_ran_ns: int | None) -> dict[str, Any]:
    """Return the entry of a trial beside other jobs, empty of one alone."""
    if not isinstance(variant, PipelineVariant) or not variant.beside or while_all_ran_ns is None:
        return {}
    return {
        "beside": {
            "job": variant.jobs.job,
            "variant": variant.jobs.alone,
            "others": [other.name for other in variant.beside],
            "until_ns": while_all_ran_ns,
        }
    }

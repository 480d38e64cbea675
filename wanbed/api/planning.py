"""Plan experiments: which datacenters should train, with how many replicas and which stages where."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Literal, get_args

from wanbed.api.argument_names import options_as_arguments
from wanbed.api.experiment import CheckedExperiment, Experiment, checked_experiment
from wanbed.ground.errors import InputError, prefixed
from wanbed.ground.own_code import PROCESSOR, WALL_CLOCK
from wanbed.results.reading.not_modelled import not_modelled_text
from wanbed.results.text import list_text
from wanbed.runner.experiment.sweep import SweepPointSpec
from wanbed.runner.planner.effort import Limits, seconds_limit
from wanbed.runner.planner.families import FamiliesAsked, FamilyPrice, family_notes
from wanbed.runner.planner.goal import Goal
from wanbed.runner.planner.planning import Plan, SearchName, planned_points, planning_task, position_to_plan
from wanbed.runner.planner.planning import plan as plan_task
from wanbed.runner.planner.pricing import Spread
from wanbed.runner.rack_runs.pools import plan_spread
from wanbed.runner.resolve.written_variant import WrittenVariant
from wanbed.runner.runs.not_modelled import left_out_of_plan, plan_without

_RUNNERS_UP = 5
_log = logging.getLogger("wanbed").info


@dataclass(frozen=True)
class VariantPlan:
    """The plan of a variant at one sweep point.

    ``swept`` has the swept values as text, by path. ``plan.chosen`` is the best candidate with its price,
    ``plan.runners_up`` are others, best first. ``not_modelled`` is what the plan leaves out, as text, or "".
    ``counts_tokens`` is False without a model: prices of candidates then count sequences.
    ``families`` are the prices of the ways to train that were asked for, whose ``counted_per_s`` are tokens or, without
    a model, sequences.
    """

    sweep_point: int
    swept: Mapping[str, str]
    variant: str
    plan: Plan
    not_modelled: str
    counts_tokens: bool = True
    families: tuple[FamilyPrice, ...] = ()

    @property
    def family_notes(self) -> tuple[str, ...]:
        """Notes for a comparison of ``families``, such as whose tokens are not worth the same."""
        return family_notes(self.families)

    @property
    def datacenters(self) -> tuple[str, ...]:
        """The datacenters that train, in order of stages."""
        return self.plan.chosen.candidate.datacenters

    @property
    def placement(self) -> tuple[str, ...]:
        """The datacenter of each stage, as ``placement`` of a variant takes it."""
        return self.plan.chosen.candidate.placement

    @property
    def pipelines(self) -> int:
        """The number of pipelines, as ``training.pipelines`` takes it."""
        return self.plan.chosen.candidate.pipelines

    @property
    def iteration_time_s(self) -> float:
        """The iteration time that the plan expects."""
        return self.plan.chosen.price.iteration_time_s

    @property
    def tokens_per_s(self) -> float | None:
        """The tokens a second that the plan expects, None without a model."""
        return self.plan.chosen.price.tokens_per_s if self.counts_tokens else None

    @property
    def usd_per_h(self) -> float | None:
        """What the plan costs an hour, None without prices."""
        price = self.plan.chosen.price
        return None if price.cost is None else price.figures.usd_per_h

    @property
    def usd_per_million_tokens(self) -> float | None:
        """What a million tokens cost, None without prices or without a model."""
        price = self.plan.chosen.price
        return price.figures.usd_per_million if price.cost is not None and self.counts_tokens else None

    @property
    def within_max_cost(self) -> bool:
        """Whether the plan costs no more than was asked for; if not, it is the cheapest that was found."""
        return self.plan.within_limit


def plan(
    experiment: Experiment | str | PathLike[str],
    *,
    variant: str | None = None,
    search: SearchName = "better",
    simulations: int | None = None,
    time_limit: str | None = None,
    objective: Literal["tokens", "cost"] = "tokens",
    max_cost: str | None = None,
    rack: str | None = None,
    families: Sequence[str] = (),
    sync_every: int | None = None,
    swap: str | None = None,
) -> tuple[VariantPlan, ...]:
    """Plan one variant of an experiment, or of that of a file: a plan for each sweep point, one without a sweep.

    ``variant`` is by default the first with schedule atlas, or the first of all. ``search``, ``simulations`` and
    ``time_limit``, like "60s", are those of the command, but there is no limit of time by default. ``objective`` is the
    most tokens a second or the least cost of a token, by the prices of the datacenters, and ``max_cost`` the most that
    a plan may cost, like "40USD/h" or "0.50USD/Mtoken" for a million tokens. With ``rack``, the
    address of a Ray cluster, HOST:PORT, candidates are simulated on its machines. ``families`` also prices other ways
    to train: some of "pipeline", "hierarchical", "diloco" and "atom", of which the last two average every
    ``sync_every`` iterations (default: 100), and atom loads layers at the rate ``swap``, like "12GB/s". Raise
    InputError if there is no such variant, or none of its placements fits, and NothingPricedError if the time did not
    suffice.
    """
    if search not in get_args(SearchName):
        raise InputError(f"search {search}: there are {list_text(list(get_args(SearchName)))}")
    if isinstance(families, str):
        raise InputError(f"families: {families!r} is one text: give a list, like [{families!r}]")
    checked = checked_experiment(experiment)
    with options_as_arguments():
        asked = FamiliesAsked.named(families, sync_every, swap)
        goal = Goal.of(objective, max_cost)
        points = list(planned_points(checked.points))
        for line in left_out_of_plan(points):
            _log(line)
        time_kind = PROCESSOR if rack is None else WALL_CLOCK
        limits = Limits(simulations, None if time_limit is None else seconds_limit(time_limit), of=time_kind)
        with plan_spread(rack, _log) as spread:
            return tuple(
                _planned(checked, point, variant, (search, limits, goal), asked, spread=spread) for point in points
            )


def _planned(
    checked: CheckedExperiment,
    point: SweepPointSpec,
    variant: str | None,
    how: tuple[SearchName, Limits, Goal],
    asked: FamiliesAsked,
    *,
    spread: Spread | None,
) -> VariantPlan:
    search, limits, goal = how
    position = position_to_plan(point, variant)
    name = point.spec.variants[position].name
    with prefixed(f"{point.source}: "):
        variant_written = WrittenVariant(point.spec, position, point.topology, checked.document.directory, point.values)
        task = planning_task(variant_written, pipelines=None, goal=goal)
        found = plan_task(task, search, limits=limits, runners_up=_RUNNERS_UP, spread=spread, explained=True)
        if found.ended_by is not None:
            raise found.ended_by
        families = asked.prices(variant_written, task, found, _log)
    without = not_modelled_text(plan_without(point.spec, point.topology, [name]))
    return VariantPlan(point.index, dict(point.values), name, found, without, task.context is not None, families)

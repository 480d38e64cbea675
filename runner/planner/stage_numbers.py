"""Plan a variant whose file leaves the number of stages open: plan each number that fits, the most promising first.

The times of a stage must follow from the model, that is from a compute profile. More stages take less memory each and
send more activations; fewer leave GPUs for more pipelines, each of which trains its own sequences.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from wanbed.ground.errors import InputError
from wanbed.runner.experiment.training_spec import MAX_STAGES
from wanbed.runner.planner.effort import Effort, Limits
from wanbed.runner.planner.goal import FASTEST, Goal
from wanbed.runner.planner.planning import Plan, PlanningTask, ceiling, planning_task, search_space
from wanbed.runner.planner.search import NothingPricedError, highest_ceiling
from wanbed.runner.planner.search_space import free_gpus
from wanbed.runner.resolve.stage_costs import model_config
from wanbed.runner.resolve.written_variant import WrittenVariant

Search = Callable[[PlanningTask, Limits], Plan]
"""Plans one number of stages within limits."""


@dataclass(frozen=True)
class OfStages:
    """The outcome of one number of stages: its best plan, or ``why`` there is none.

    No plan with so many stages is worth more than ``at_most``, None if there is no plan at all.
    """

    stages: int
    at_most: float | None
    task: PlanningTask | None = None
    found: Plan | None = None
    why: str = ""


@dataclass(frozen=True)
class StagesPlan:
    """The plan with the number of stages that is worth the most, and the outcome of every number.

    ``found`` has the simulations of all searches, and what no plan with any number of stages exceeds.
    """

    task: PlanningTask
    found: Plan
    of_stages: tuple[OfStages, ...]


@dataclass(frozen=True)
class StageNumbers:
    """The numbers of stages that do not fit, and the task of every other one with its bound, the highest first."""

    refused: tuple[OfStages, ...]
    promising: tuple[tuple[float, PlanningTask], ...]


def leaves_stages_open(written: WrittenVariant) -> bool:
    """Tell whether the file leaves the number of stages to the planner: it has none, and fixes no stage's figures."""
    spec, compute = written.spec, written.spec.compute
    return (
        (written.variant.training.stages or spec.training.stages) is None
        and compute.times_profile is not None
        and compute.from_run is None
        and compute.gradient is None
        and not isinstance(compute.activation, tuple)
        and not isinstance(compute.checkpointing, tuple)
        and all(entry.stage is None for entry in compute.slower)
    )


def stage_numbers(written: WrittenVariant, goal: Goal = FASTEST) -> StageNumbers:
    """Return the numbers of stages that the model and the GPUs allow. Raise InputError if none fits.

    Also raise it where costs that the ``goal`` is about are not known.
    """
    goal.check(written.topology.prices, counts_tokens=written.spec.model is not None)
    layers = model_config(written.spec, "planning the number of stages").layers
    most = min(layers, sum(free_gpus(written.topology).values()), MAX_STAGES)
    refused: list[OfStages] = []
    fitting: list[tuple[float, PlanningTask]] = []
    refusals: list[InputError] = []
    for stages in range(1, most + 1):
        try:
            task = planning_task(with_stages(written, stages), pipelines=None, goal=goal)
            space = search_space(task)
        except InputError as refusal:
            refusals.append(refusal)
            # The remedy of another number of stages is no remedy here.
            refused.append(OfStages(stages, None, why=str(refusal).rpartition(": ")[0]))
            continue
        fitting.append((highest_ceiling(space, ceiling(task)), task))
    if not fitting:
        raise refusals[-1]
    return StageNumbers(tuple(refused), tuple(sorted(fitting, key=lambda each: -each[0])))


def plan_stages(numbers: StageNumbers, search: Search, limits: Limits, effort: Effort | None = None) -> StagesPlan:
    """Plan every number of stages that may be worth the most, within ``limits`` for all together.

    A number is not planned if its bound does not exceed the best so far. Each gets an equal part of the time that is
    left. Raise NothingPricedError if the time ends before there is an answer.
    """
    effort = effort or Effort(limits)
    outcomes, promising = list(numbers.refused), numbers.promising
    best: tuple[PlanningTask, Plan] | None = None
    unanswered: NothingPricedError | None = None
    ended = False
    for number, (at_most, task) in enumerate(promising):
        if best is not None and at_most <= best[1].chosen.worth:
            outcomes.append(OfStages(task.stages, at_most, why="by its bound"))
            continue
        simulated = sum(each.found.simulations for each in outcomes if each.found is not None)
        own = _part(limits, effort.elapsed_s, simulated, len(promising) - number, first=best is None)
        if own is None or ended:
            outcomes.append(OfStages(task.stages, at_most, why="not reached within the limit"))
            continue
        try:
            found = search(task, own)
        except NothingPricedError as end:
            ended = end.ended_by is not None
            unanswered = end
            outcomes.append(OfStages(task.stages, at_most, why=f"cut off {end}"))
            continue
        outcomes.append(OfStages(task.stages, min(at_most, found.at_most), task, found))
        if best is None or found.chosen.worth > best[1].chosen.worth:
            best = task, found
        ended = found.ended_by is not None
    if best is None:
        raise unanswered or NothingPricedError("at the limit", None)
    return _together(*best, tuple(sorted(outcomes, key=lambda each: each.stages)))


def with_stages(written: WrittenVariant, stages: int) -> WrittenVariant:
    """Return the variant as if the file gave it that number of stages."""
    variant, spec = written.variant, written.spec
    training = variant.training.model_copy(update={"stages": stages})
    variants = tuple(
        variant.model_copy(update={"training": training}) if position == written.position else each
        for position, each in enumerate(spec.variants)
    )
    return replace(written, spec=spec.model_copy(update={"variants": variants}))


def _part(limits: Limits, elapsed_s: float, simulated: int, searches: int, *, first: bool) -> Limits | None:
    """Return the limits of the next of so many searches, None if nothing is left of them."""
    time_s, simulations = limits.time_s, limits.simulations
    if time_s is not None:
        time_s -= elapsed_s
        if time_s <= 0 and not first:
            return None
        time_s = max(time_s, 0.0) / searches
    if simulations is not None:
        simulations -= simulated
        if simulations <= 0:
            return None
        simulations = max(simulations // searches, 1)
    return replace(limits, time_s=time_s, simulations=simulations, first_s=limits.first_s if first else 0.0)


def _together(task: PlanningTask, found: Plan, of_stages: tuple[OfStages, ...]) -> StagesPlan:
    """Return the best plan, with what is known of all numbers of stages."""
    best = found.chosen.worth
    plans = [each.found for each in of_stages if each.found is not None]
    unplanned = [(each.why, each.at_most) for each in of_stages if each.found is None and each.at_most is not None]
    at_most = max(best, *(each.at_most for each in of_stages if each.at_most is not None))
    cut_off = next((plan.cut_off for plan in plans if plan.cut_off is not None and plan.at_most > best), None)
    if cut_off is None and at_most > best:
        cut_off = next(why for why, promised in unplanned if promised > best)
    ended_by = next((plan.ended_by for plan in plans if plan.ended_by is not None), None)
    simulations = sum(plan.simulations for plan in plans)
    whole = replace(found, at_most=at_most, cut_off=cut_off, ended_by=ended_by, simulations=simulations)
    return StagesPlan(task, whole, of_stages)

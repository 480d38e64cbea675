"""``wanbed plan``: choose the datacenters and the number of DP-cells for training, and report the iteration time."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wanbed.ground.errors import InputError, prefixed
from wanbed.results.text import list_text
from wanbed.runner.cli.arguments import AsJson, ExperimentFile, Overrides, RackAddress
from wanbed.runner.cli.exit_status import fail, log, one_line_errors
from wanbed.runner.runs.faults import BEYOND_LIMIT, NO_DATA

if TYPE_CHECKING:
    from wanbed.runner.cli.plan_output import Planned, Unplanned
    from wanbed.runner.experiment.sweep import SweepPointSpec
    from wanbed.runner.planner.effort import Limits
    from wanbed.runner.planner.families import FamiliesAsked
    from wanbed.runner.planner.goal import Goal
    from wanbed.runner.planner.planning import SearchName
    from wanbed.runner.planner.pricing import Spread
    from wanbed.runner.planner.stage_numbers import OfStages

_RUNNERS_UP = 5

_TIME_S, _FIRST_S = 60.0, 300.0
"""The default limit of time, and that of the first candidate, without which there is no answer."""

_SEARCHES: tuple["SearchName", ...] = ("greedy", "better", "exhaustive")


def plan_(
    file: ExperimentFile,
    *,
    overrides: Overrides = None,
    variant: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which to plan. Default: the first with schedule atlas.")
    ] = None,
    search: Annotated[
        str, typer.Option(help="greedy (Algorithm 1 of Atlas), better (branch and bound), exhaustive (small sizes).")
    ] = "better",
    objective: Annotated[
        str, typer.Option(help="tokens (the most a second) or cost (the least for a token, by the file's prices).")
    ] = "tokens",
    max_cost: Annotated[
        str | None,
        typer.Option(
            metavar="COST", help="Most that a plan may cost, like 40USD/h, or 0.50USD/Mtoken for a million tokens."
        ),
    ] = None,
    simulations: Annotated[
        int | None,
        typer.Option(min=1, help="Most candidates to simulate. Default: as many as the time allows."),
    ] = None,
    time_limit: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Most processor time for each search, with --rack wall-clock time: it ends with the best so far. "
            "Default: 60s, and up to 300s for the first candidate.",
        ),
    ] = None,
    families: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Also price other ways to train, with commas between: pipeline, hierarchical (data parallelism), "
            "diloco, atom.",
        ),
    ] = None,
    sync_every: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Iterations between DiLoCo's and ATOM's averages: 100."),
    ] = None,
    swap: Annotated[
        str | None,
        typer.Option(metavar="RATE", help="Rate at which ATOM loads layers into a GPU, like 12GB/s."),
    ] = None,
    rack: RackAddress = None,
    as_json: AsJson = False,
) -> None:
    """Choose the datacenters, the number of DP-cells and the placement of stages with the most tokens a second.

    Every number of DP-cells that fits is tried, independent of training.pipelines, and simulated. Change the network
    with --set, like --set topology.datacenters.0.hosts=64. In a file with a sweep, each sweep point is planned. Where
    datacenters have prices, plans have their costs, and --objective cost takes the cheapest token.
    Ctrl-C ends the search with the best so far. With --rack candidates are simulated on the CPUs of a Ray cluster.
    """
    with one_line_errors():
        from wanbed.runner.experiment.experiment_document import ExperimentDocument
        from wanbed.runner.experiment.sweep import sweep_point_specs

        specs = list(sweep_point_specs(ExperimentDocument.read(file, overrides or [])))
        # The planner and the simulator take a second to load, which a refused file spares.
        from wanbed.ground.own_code import PROCESSOR, WALL_CLOCK
        from wanbed.runner.cli.plan_output import Planned, document, print_plan
        from wanbed.runner.planner.effort import Limits, seconds_limit
        from wanbed.runner.planner.families import FamiliesAsked
        from wanbed.runner.planner.goal import Goal
        from wanbed.runner.planner.planning import planned_points
        from wanbed.runner.rack_runs.pools import plan_spread
        from wanbed.runner.runs.not_modelled import left_out_of_plan

        chosen_search = next((name for name in _SEARCHES if name == search), None)
        if chosen_search is None:
            raise InputError(f"--search {search}: there are {list_text(list(_SEARCHES))}")
        asked = FamiliesAsked.named([] if families is None else families.split(","), sync_every, swap)
        goal = Goal.of(objective, max_cost)
        # What the machines of a rack compute is no time of this process.
        time_kind = PROCESSOR if rack is None else WALL_CLOCK
        limits = Limits(simulations, _TIME_S, first_s=_FIRST_S, of=time_kind)
        if time_limit is not None:
            limits = Limits(simulations, seconds_limit(time_limit), of=time_kind)
        planned: list[Planned | Unplanned] = []
        points = list(planned_points(specs))
        for line in left_out_of_plan(points):
            log(line)
        ended_by: BaseException | None = None
        with plan_spread(rack, log) as spread:
            for point in points:
                outcome, ended_by = _plan_point(point, variant, file, (chosen_search, limits, goal), spread=spread)
                if isinstance(outcome, Planned) and ended_by is None:
                    outcome = _with_families(outcome, asked, file)
                planned.append(outcome)
                if not as_json:
                    print_plan(outcome, file)
                if ended_by is not None:
                    break
        if as_json:
            documents = [document(each) for each in planned]
            complete = len(planned) == len(points) and all(each["complete"] for each in documents)
            swept = {"sweep_points": documents, "complete": complete}
            print(json.dumps(swept if points[0].spec.sweep else documents[0], indent=2))
        if ended_by is not None:
            raise ended_by
        if not any(isinstance(each, Planned) for each in planned):
            waited = f"{time_limit or '300s'} of {time_kind.name}"
            fail(f"{file}: no candidate was simulated in {waited}: give a longer --time-limit", NO_DATA)
        if any(isinstance(each, Planned) and not each.found.within_limit for each in planned):
            fail(f"{file}: no plan found costs {max_cost} at most: the cheapest is shown", BEYOND_LIMIT)


def _with_families(planned: "Planned", asked: "FamiliesAsked", file: Path) -> "Planned":
    """Return a plan with the prices of these families."""
    from wanbed.runner.planner.planning import position_to_plan
    from wanbed.runner.planner.stage_numbers import with_stages
    from wanbed.runner.resolve.written_variant import WrittenVariant

    point = planned.point
    position = position_to_plan(point, planned.variant)
    written = WrittenVariant(point.spec, position, point.topology, file.parent, point.values)
    with prefixed(f"{point.source}: "):
        cut = with_stages(written, planned.task.stages)
        return replace(planned, families=asked.prices(cut, planned.task, planned.found, log))


def _plan_point(
    point: "SweepPointSpec",
    variant: str | None,
    file: Path,
    how: "tuple[SearchName, Limits, Goal]",
    *,
    spread: "Spread | None",
) -> "tuple[Planned | Unplanned, BaseException | None]":
    """Plan a sweep point. Also return the exception of a signal that has ended the search, None if there was none."""
    search, limits, goal = how
    from wanbed.runner.cli.plan_output import Planned, PlanProgress, Unplanned
    from wanbed.runner.planner.planning import most_promising, plan, planning_task, position_to_plan
    from wanbed.runner.planner.search import NothingPricedError
    from wanbed.runner.planner.stage_numbers import leaves_stages_open, plan_stages, stage_numbers
    from wanbed.runner.resolve.written_variant import WrittenVariant
    from wanbed.runner.runs.caveats import cut_line, cuts_of
    from wanbed.runner.runs.not_modelled import links_that_change, plan_without

    position = position_to_plan(point, variant)
    name = point.spec.variants[position].name
    written = WrittenVariant(point.spec, position, point.topology, file.parent, point.values)
    with prefixed(f"{point.source}: "):
        numbers = stage_numbers(written, goal) if leaves_stages_open(written) else None
        task = planning_task(written, pipelines=None, goal=goal) if numbers is None else numbers.promising[0][1]
        try:
            with PlanProgress() as progress:
                searched = partial(
                    plan,
                    search=search,
                    runners_up=_RUNNERS_UP,
                    spread=spread,
                    report=progress.report,
                    explained=True,
                )
                of_stages: tuple[OfStages, ...] = ()
                if numbers is None:
                    found = searched(task, limits=limits)
                else:
                    whole = plan_stages(numbers, lambda each, own: searched(each, limits=own), limits)
                    task, found, of_stages = whole.task, whole.found, whole.of_stages
        except NothingPricedError as end:
            promising = tuple(most_promising(task, _RUNNERS_UP))
            return Unplanned(point, name, task, str(end), promising), end.ended_by
    cuts = cuts_of(point.topology, task.place(found.chosen.candidate))
    if cuts:
        log(cut_line(name, [(cut, point.values) for cut in cuts]))
    without = (*plan_without(point.spec, point.topology, [name]), *links_that_change(point.topology))
    return Planned(point, name, task, found, without, of_stages=of_stages), found.ended_by

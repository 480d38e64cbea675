"""``wanbed plan``: choose the datacenters and the number of DP-cells for training, and report the iteration time."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ground.strict_model import InputError, parse_model, prefixed
from results.reading.not_modelled import NotModelled, not_modelled_text
from results.text.number_text import count_text, list_text, percent_text, seconds_text, size_text, three_digits
from runner.cli.arguments import AsJson, ExperimentFile, Overrides
from runner.cli.exit_status import one_line_errors
from runner.cli.outcome import log
from runner.experiment.experiment_spec import ExperimentSpec
from runner.experiment.sweep_points import SweepPointSpec, read_experiment, sweep_point_specs
from runner.planner.candidate import Priced, Runs
from runner.planner.planning import Plan, PlanningTask, SearchName, plan
from runner.planner.planning_task import planned_points, planning_task, position_to_plan
from runner.resolve.written_variant import WrittenVariant
from runner.runs.cut_connections import cut_line, cuts_of
from runner.runs.not_modelled import as_written, left_out_of_plan, simulated_without

_WIDTH = 120
"""The width of tables that go to a file or a pipe."""
_RUNNERS_UP = 5
_SEARCHES: tuple[SearchName, ...] = ("greedy", "better", "exhaustive")


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
    simulations: Annotated[
        int | None,
        typer.Option(min=1, help="Limit of the better search, reported when reached. Default: about a minute's worth."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Choose the datacenters, the number of DP-cells and the placement of stages with the most tokens a second.

    Every number of DP-cells that fits is tried, independent of training.pipelines, and simulated. Change the network
    with --set, like --set topology.datacenters.0.hosts=64. In a file with a sweep, each sweep point is planned.
    """
    with one_line_errors():
        chosen_search = next((name for name in _SEARCHES if name == search), None)
        if chosen_search is None:
            raise InputError(f"--search {search}: there are {list_text(list(_SEARCHES))}")
        planned: list[_Planned] = []
        document, source = read_experiment(file, overrides or [])
        spec = parse_model(ExperimentSpec, document, source)
        points = list(planned_points(sweep_point_specs(spec, document, source, file.parent)))
        for line in left_out_of_plan(points):
            log(line)
        for point in points:
            position = position_to_plan(point, variant)
            written = WrittenVariant(point.spec, position, point.topology, file.parent)
            with prefixed(f"{point.source}: "):
                task = planning_task(written, pipelines=None)
                with Console(stderr=True).status("simulating candidates"):
                    found = plan(task, chosen_search, most_simulations=simulations, runners_up=_RUNNERS_UP)
            name = point.spec.variants[position].name
            cuts = cuts_of(point.topology, task.resolve(found.chosen.candidate))
            if cuts:
                log(cut_line(name, [(cut, point.values) for cut in cuts]))
            planned.append(_Planned(point, name, task, found, simulated_without(point.spec, point.topology, [name])))
            if not as_json:
                _print(planned[-1], file)
        if as_json:
            documents = [_document(each) for each in planned]
            swept = points[0].spec.sweep
            print(json.dumps({"sweep_points": documents} if swept else documents[0], indent=2))


@dataclass(frozen=True)
class _Planned:
    """The variant of a sweep point with its plan, and what the plan does not model (``without``)."""

    point: SweepPointSpec
    variant: str
    task: PlanningTask
    found: Plan
    without: tuple[NotModelled, ...]


def _document(planned: _Planned) -> dict[str, Any]:
    values, found = planned.point.values, planned.found
    return {
        **({"sweep_point": dict(values)} if values else {}),
        "variant": planned.variant,
        "chosen": _proposal(found, found.chosen),
        "alternatives": [_proposal(found, priced) for priced in found.runners_up],
        "unused_gpus": dict(found.unused),
        "simulations": found.simulations,
        "cut_off": found.cut_off,
        "not_modelled": as_written(planned.without),
    }


def _proposal(found: Plan, priced: Priced) -> dict[str, Any]:
    candidate, price = priced.candidate, priced.price
    return {
        "datacenters": list(candidate.datacenters),
        "dp_cells": candidate.dp_cells,
        "pipelines_per_cell": candidate.pipelines_per_cell,
        "placement": list(candidate.placement),
        "iteration_time_s": price.iteration_time_s,
        "tokens_per_s": price.tokens_per_s,
        "gpu_utilization": price.gpu_utilization,
        "wan_bytes": price.wan_bytes,
        "found_by": found.found_by(priced),
    }


def _print(planned: _Planned, file: Path) -> None:
    point, variant, found = planned.point, planned.variant, planned.found
    console = Console(highlight=False, soft_wrap=True)
    values = ", ".join(f"{path}={text}" for path, text in point.values.items())
    stages = f"{count_text(planned.task.stages, 'stage')}{_stages_reason(point.spec, variant)}"
    console.print(Text(f"{values or file}: {variant}, {stages}"), style="bold")
    for line in _answer(found):
        console.print(Text(line))
    if planned.without:
        console.print(Text(f"{'not modelled':<18}{not_modelled_text(planned.without)}: the plan is one without"))
    if found.cut_off is not None:
        console.print(f"search cut off {found.cut_off}: a better plan may exist (--simulations allows more)")
    table_console = console if console.is_terminal else Console(highlight=False, width=_WIDTH)
    table_console.print(_table(found))


def _stages_reason(spec: ExperimentSpec, variant: str) -> str:
    own = next(entry.training for entry in spec.variants if entry.name == variant)
    if (own.stages or spec.training.stages) is not None:
        return ""
    pipelines = count_text(own.pipelines or spec.training.pipelines, "pipeline")
    return f" (training.stages is not given: one for every GPU that {pipelines} would leave)"


def _answer(found: Plan) -> list[str]:
    candidate, price = found.chosen.candidate, found.chosen.price
    unused = [f"{count} in {name}" for name, count in found.unused.items() if count]
    figures = {
        "datacenters": list_text(list(candidate.datacenters)),
        "DP-cells": f"{candidate.dp_cells} of {count_text(candidate.pipelines_per_cell, 'pipeline')}",
        "stages": _stages_text(candidate.runs),
        "iteration time": seconds_text(price.iteration_time_s),
        "tokens a second": three_digits(price.tokens_per_s),
        "GPU utilization": percent_text(price.gpu_utilization),
        "WAN an iteration": size_text(price.wan_bytes),
        "GPUs left unused": list_text(unused) or "none",
        "found by": _found_by(found),
    }
    return [f"{name:<18}{text}" for name, text in figures.items()]


def _found_by(found: Plan) -> str:
    name = {"greedy": "the greedy walk", "better": "the better search", "exhaustive": "exhaustive search"}
    proven = ", and no other that keeps a stage's replicas in one datacenter gives more" if found.proven else ""
    return f"{name[found.found_by(found.chosen)]}{proven} ({count_text(found.simulations, 'simulation')})"


def _table(found: Plan) -> Table:
    table = Table()
    table.add_column("")
    for heading in ("DP-cells x\npipelines", "stages"):
        table.add_column(heading)
    for heading in ("iteration", "tokens/s", "of the\nchosen", "GPU\nutilization", "WAN"):
        table.add_column(heading, justify="right", no_wrap=True)
    for priced in (found.chosen, *found.runners_up):
        candidate, price = priced.candidate, priced.price
        marks = [
            mark for mark, holds in (("chosen", priced == found.chosen), ("greedy", priced == found.greedy)) if holds
        ]
        table.add_row(
            ", ".join(marks),
            f"{candidate.dp_cells} x {candidate.pipelines_per_cell}",
            Text(_stages_text(candidate.runs)),
            seconds_text(price.iteration_time_s),
            three_digits(price.tokens_per_s),
            percent_text(price.tokens_per_s / found.chosen.price.tokens_per_s),
            percent_text(price.gpu_utilization),
            size_text(price.wan_bytes),
        )
    return table


def _stages_text(runs: Runs) -> str:
    """Return the stages of each datacenter as text: ``east: 0-2, west: 3``."""
    texts, first = [], 0
    for name, stages in runs:
        last = first + stages - 1
        texts.append(f"{name}: {first}" if stages == 1 else f"{name}: {first}-{last}")
        first = last + 1
    return ", ".join(texts)

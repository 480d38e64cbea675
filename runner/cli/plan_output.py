"""Show the plans of ``wanbed plan``, as text with tables and as a JSON document, and the progress of their search."""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from rich.console import Console
from rich.text import Text

from wanbed.ground.units import format_size
from wanbed.results.reading.not_modelled import NotModelled, not_modelled_text
from wanbed.results.report.table import Column, Table
from wanbed.results.text import (
    count_text,
    list_text,
    percent_text,
    rate_text,
    seconds_text,
    size_text,
    three_digits,
)
from wanbed.runner.cli.plan_goal import (
    better_text,
    bound_text,
    cost_record,
    cost_text,
    gap_text,
    limit_text,
    usd_heading,
    worse_text,
    worth_record,
)
from wanbed.runner.cli.terminal import print_table, terminal
from wanbed.runner.experiment.experiment_spec import ExperimentSpec
from wanbed.runner.experiment.sweep import SweepPointSpec
from wanbed.runner.planner.bottleneck import IterationLimits, LinkUse, PathShare
from wanbed.runner.planner.effort import Effort
from wanbed.runner.planner.families import FamilyPrice, family_notes, same_worth
from wanbed.runner.planner.planning import LeftOut, Plan, PlanningTask, fullest_stage
from wanbed.runner.planner.search import LARGE_CELLS_LEFT_OUT
from wanbed.runner.planner.search_space import Candidate, Priced, Runs
from wanbed.runner.planner.stage_numbers import OfStages
from wanbed.runner.resolve.stage_memory import GIB, memory_text
from wanbed.runner.runs.not_modelled import as_written
from wanbed.runner.runs.progress import PLAIN_INTERVAL_S

_ALTERNATIVES = 5
"""Rows of the table beside the chosen and the greedy candidate."""

_PARTS = 4
"""The parts of the critical path that are shown."""

_CAPACITIES = {"trunk": "its trunk", "node_pair": "a node pair's rate", "windows": "the TCP windows of a node pair"}


@dataclass(frozen=True)
class Planned:
    """A variant of a sweep point with its plan, and what the plan does not model (``without``).

    ``families`` are the prices of ways to train, the plan's own among them, if they were asked for. ``of_stages`` is
    the outcome of every number of stages where the file leaves it open.
    """

    point: SweepPointSpec
    variant: str
    task: PlanningTask
    found: Plan
    without: tuple[NotModelled, ...]
    families: tuple[FamilyPrice, ...] = ()
    of_stages: tuple[OfStages, ...] = ()


@dataclass(frozen=True)
class Unplanned:
    """A variant of a sweep point whose search ended before it had simulated a candidate.

    ``cut_off`` is the reason. ``promising`` has the candidates that promise the most, each with the worth that it does
    not exceed.
    """

    point: SweepPointSpec
    variant: str
    task: PlanningTask
    cut_off: str
    promising: tuple[tuple[Candidate, float], ...]


def document(planned: Planned | Unplanned) -> dict[str, Any]:
    """Return a plan in plain JSON types. ``chosen`` is null if no candidate was simulated."""
    values = planned.point.values
    head = {**({"swept": dict(values)} if values else {}), "variant": planned.variant}
    if isinstance(planned, Unplanned):
        return {
            **head,
            "chosen": None,
            "alternatives": [],
            "not_simulated": [
                {**_layout(candidate), **worth_record(planned.task.goal, most, planned.task.counted)}
                for candidate, most in planned.promising
            ],
            "simulations": 0,
            "complete": False,
            "cut_off": planned.cut_off,
        }
    found, goal = planned.found, planned.task.goal
    return {
        **head,
        **({} if goal.limit is None else {"max_cost": goal.limit.text, "within_max_cost": found.within_limit}),
        "chosen": _proposal(planned, found.chosen),
        "alternatives": [_proposal(planned, priced) for priced in found.runners_up],
        "unused_gpus": dict(found.unused),
        **({"stages": [_stages_record(planned, each) for each in planned.of_stages]} if planned.of_stages else {}),
        "left_out": {name: _left_out_record(planned, each) for name, each in found.left_out.items()},
        "simulations": found.simulations,
        **worth_record(goal, found.at_most, planned.task.counted),
        "gap": found.gap,
        "complete": found.cut_off is None,
        "cut_off": found.cut_off,
        "not_modelled": as_written(planned.without),
        **({"families": family_records(planned.families, planned.task)} if planned.families else {}),
    }


def _proposal(planned: Planned, priced: Priced) -> dict[str, Any]:
    price, bottleneck = priced.price, priced.price.bottleneck
    return {
        **_layout(priced.candidate),
        "iteration_time_s": price.iteration_time_s,
        f"{planned.task.counted}_per_s": price.tokens_per_s,
        "gpu_utilization": price.gpu_utilization,
        "wan_bytes": price.wan_bytes,
        **cost_record(price, planned.task.counted),
        "sequences": _sequences(planned, priced.candidate.pipelines),
        "found_by": planned.found.found_by(priced),
        "bottleneck": None if bottleneck is None else _bottleneck(bottleneck),
    }


def _stages_record(planned: Planned, of_stages: OfStages) -> dict[str, Any]:
    counted, found = planned.task.counted, of_stages.found
    return {
        "stages": of_stages.stages,
        "best": None if found is None else _layout(found.chosen.candidate),
        f"{counted}_per_s": None if found is None else found.chosen.price.tokens_per_s,
        **({} if found is None else cost_record(found.chosen.price, counted)),
        **worth_record(planned.task.goal, of_stages.at_most, counted),
        "reason": of_stages.why or None,
    }


def _left_out_record(planned: Planned, left_out: LeftOut) -> dict[str, Any]:
    best = left_out.best_with
    return {
        "free_gpus": left_out.free_gpus,
        "best_with": None if best is None else _layout(best.candidate),
        f"{planned.task.counted}_per_s_with": None if best is None else best.price.tokens_per_s,
        "reason": _left_out_text(planned, left_out),
    }


def _bottleneck(bottleneck: IterationLimits) -> dict[str, Any]:
    path = [
        {**asdict(each.part), "datacenters": list(each.part.datacenters), "share": each.share, "latency": each.latency}
        for each in bottleneck.path
    ]
    link = None if bottleneck.link is None else asdict(bottleneck.link)
    return {"critical_path": path, "busiest_gpu": asdict(bottleneck.gpu), "busiest_link": link}


def _layout(candidate: Candidate) -> dict[str, Any]:
    return {
        "datacenters": list(candidate.datacenters),
        "dp_cells": candidate.dp_cells,
        "pipelines_per_cell": candidate.pipelines_per_cell,
        "placement": list(candidate.placement),
    }


def print_plan(planned: Planned | Unplanned, file: Path) -> None:
    """Print the answer and the table of a plan."""
    point, variant = planned.point, planned.variant
    console = Console(highlight=False, soft_wrap=True)
    values = ", ".join(f"{path}={text}" for path, text in point.values.items())
    searched = isinstance(planned, Planned) and bool(planned.of_stages)
    reason = " (training.stages is not given: the best of all numbers)" if searched else ""
    stages = f"{count_text(planned.task.stages, 'stage')}{reason or _stages_reason(point.spec, variant)}"
    console.print(Text(f"{values or file}: {variant}, {stages}"), style="bold")
    if isinstance(planned, Unplanned):
        console.print(f"search cut off {planned.cut_off}: no candidate is simulated")
        print_table(_table_of_promises(planned), terminal())
        return
    found = planned.found
    if (beyond := limit_text(found, planned.task.counted)) is not None:
        console.print(Text(beyond))
    for line in _answer(planned):
        console.print(Text(line))
    if planned.without:
        console.print(Text(f"{'not modelled':<20}{not_modelled_text(planned.without)}: the plan is one without"))
    if found.cut_off is not None:
        limited = found.ended_by is None and found.cut_off != LARGE_CELLS_LEFT_OUT
        remedy = " (--time-limit and --simulations allow more)" if limited else ""
        console.print(f"search cut off {found.cut_off}: a better plan may exist{remedy}")
    print_table(_table(planned), terminal())
    if planned.of_stages:
        print_table(_table_of_stages(planned), terminal())
    if planned.families:
        print_table(family_table(planned.families, planned.task), terminal())
        for line in family_notes(planned.families):
            console.print(Text(line))


def _stages_reason(spec: ExperimentSpec, variant: str) -> str:
    own = next(entry.training for entry in spec.variants if entry.name == variant)
    if (own.stages or spec.training.stages) is not None:
        return ""
    pipelines = count_text(_pipelines_in_file(spec, variant), "pipeline")
    return f" (training.stages is not given: one for every GPU that {pipelines} would leave)"


def _pipelines_in_file(spec: ExperimentSpec, variant: str) -> int:
    own = next(entry.training for entry in spec.variants if entry.name == variant)
    return own.pipelines or spec.training.pipelines


def _answer(planned: Planned) -> list[str]:
    found = planned.found
    candidate, price = found.chosen.candidate, found.chosen.price
    cost = cost_text(price, planned.task.counted)
    unused = [f"{count} in {name}" for name, count in found.unused.items() if count]
    figures = {
        "datacenters": list_text(list(candidate.datacenters)),
        "DP-cells": f"{candidate.dp_cells} of {count_text(candidate.pipelines_per_cell, 'pipeline')}",
        "stages": _stages_text(candidate.runs),
        "iteration time": seconds_text(price.iteration_time_s),
        f"{planned.task.counted} a second": three_digits(price.tokens_per_s),
        **({} if cost is None else {"cost": cost}),
        "GPU utilization": percent_text(price.gpu_utilization),
        "WAN an iteration": size_text(price.wan_bytes),
        "sequences": _batch_text(planned),
        **_layers(planned),
        **_memory(planned),
        "GPUs left unused": list_text(unused) or "none",
        **{f"why not {name}": _left_out_text(planned, each) for name, each in found.left_out.items()},
        **_why(price.bottleneck),
        **gap_text(found, planned.task.counted),
        "found by": _found_by(planned),
    }
    return [f"{name:<20}{text}" for name, text in figures.items()]


def _sequences(planned: Planned, pipelines: int) -> int:
    return pipelines * planned.task.microbatches


def _batch_text(planned: Planned) -> str:
    """Return the batch, and how it compares with that of the file: more replicas make it larger."""
    written = _pipelines_in_file(planned.point.spec, planned.variant)
    batch, of_file = (_sequences(planned, each) for each in (planned.found.chosen.candidate.pipelines, written))
    text = f"{batch:,} an iteration, {count_text(planned.task.microbatches, 'microbatch', 'microbatches')} a pipeline"
    if batch == of_file:
        return text
    fewer = count_text(written, "pipeline")
    return f"{text}: the batch grows with the pipelines, with {fewer} as in the file it is {of_file:,}"


def _layers(planned: Planned) -> dict[str, str]:
    """Return the layers of each stage, empty where they are divided evenly."""
    layers = planned.task.place(planned.found.chosen.candidate).layers
    return {} if layers is None else {"layers of stages": ", ".join(map(str, layers))}


def _memory(planned: Planned) -> dict[str, str]:
    """Return what the fullest GPU holds, empty where the model does not tell it."""
    fullest = fullest_stage(planned.task, planned.found.chosen.candidate)
    if fullest is None:
        return {}
    stage, held, memory = fullest
    limit = planned.task.memory_bytes
    of_limit = "" if limit is None else f" of {format_size(limit)}"
    return {
        "memory at most": f"{memory_text(memory)}{of_limit}: stage {stage}, "
        f"{count_text(held, 'microbatch', 'microbatches')} at once"
    }


def _left_out_text(planned: Planned, left_out: LeftOut) -> str:
    """Return why a datacenter has no stage."""
    chosen, best = planned.found.chosen, left_out.best_with
    few = ""
    if left_out.free_gpus < chosen.candidate.pipelines:
        room = count_text(left_out.free_gpus, "GPU")
        few = f"{room}, too few for a stage of {count_text(chosen.candidate.pipelines, 'pipeline')}; "
    if best is not None:
        worse = worse_text(planned.task, chosen.price, best.price)
        return f"{few}the best simulated plan with it ({_cells_text(best.candidate)}) {worse}"
    if planned.found.proven:
        return f"{few}no plan with it {better_text(planned.found, planned.task.counted)}, by the bounds"
    return f"{few}no plan with it was simulated"


def _why(bottleneck: IterationLimits | None) -> dict[str, str]:
    if bottleneck is None:
        return {}
    gpu, link = bottleneck.gpu, bottleneck.link
    kinds = {
        "computing": "computing",
        "link": "transfers",
        "all_reduce": "all-reduce",
        "norm": "gradient norm",
        "schedule": "held back by order",
    }
    whole = [f"{text} {percent_text(bottleneck.share(kind))}" for kind, text in kinds.items() if bottleneck.share(kind)]
    parts = [_part_text(each) for each in bottleneck.path[:_PARTS]]
    uses = {
        "bottleneck": f"{parts[0]} of the critical path",
        "critical path": f"{list_text(whole)}; {', '.join(parts)}{', ...' if len(bottleneck.path) > _PARTS else ''}",
        "busiest GPU": f"stage {gpu.stage} ({gpu.datacenter}) {percent_text(gpu.busy)} busy",
    }
    if link is not None:
        uses["busiest link"] = f"{_link_text(link)} of {_CAPACITIES[link.capacity]}, {rate_text(link.capacity_bps)}"
    return uses


def _part_text(share: PathShare) -> str:
    part, percent = share.part, percent_text(share.share)
    if part.kind == "link":
        name = "-".join(part.datacenters) if len(part.datacenters) > 1 else f"inside {part.datacenters[0]}"
        latency = f" ({percent_text(share.latency)} latency)" if share.latency else ""
        return f"link {name} {percent}{latency}"
    if part.kind == "norm":
        return f"gradient norm of all stages {percent}"
    name = {"computing": "GPU", "all_reduce": "all-reduce", "schedule": "order"}[part.kind]
    return f"{name} of stage {part.stage} ({part.datacenters[0]}) {percent}"


def _link_text(link: LinkUse) -> str:
    return f"link {link.source} to {link.destination} {percent_text(link.busy)} busy"


def _found_by(planned: Planned) -> str:
    found, better = planned.found, better_text(planned.found, planned.task.counted)
    name = {"greedy": "the greedy walk", "better": "the better search", "exhaustive": "exhaustive search"}
    proven = f", and no other that keeps a stage's replicas in one datacenter {better}" if found.proven else ""
    return f"{name[found.found_by(found.chosen)]}{proven} ({count_text(found.simulations, 'simulation')})"


def _table(planned: Planned) -> Table | None:
    found = planned.found
    others = [priced for priced in found.runners_up if priced != found.greedy]
    shown = {found.greedy.candidate, *(priced.candidate for priced in others[:_ALTERNATIVES])}
    left_out = f"and {count_text(len(others) - _ALTERNATIVES, 'other')}, in --json" if others[_ALTERNATIVES:] else ""
    chosen_per_s = found.chosen.price.tokens_per_s

    def marks(priced: Priced) -> str:
        named = {"chosen": found.chosen, "greedy": found.greedy}
        return ", ".join(mark for mark, candidate in named.items() if candidate == priced)

    columns: list[Column[Priced]] = [
        Column("", marks, form="text"),
        Column("DP-cells x\npipelines", lambda priced: _cells_text(priced.candidate), form="text"),
        Column("stages", lambda priced: _stages_text(priced.candidate.runs), form="text"),
        Column("iteration", lambda priced: seconds_text(priced.price.iteration_time_s)),
        Column(f"{planned.task.counted}/s", lambda priced: three_digits(priced.price.tokens_per_s)),
        Column("of the\nchosen", lambda priced: percent_text(priced.price.tokens_per_s / chosen_per_s)),
        Column("GPU\nuse", lambda priced: percent_text(priced.price.gpu_utilization)),
        Column("WAN", lambda priced: size_text(priced.price.wan_bytes)),
        *_cost_columns(planned),
        Column("bottleneck", _bottleneck_text, form="text"),
    ]
    rows = (found.chosen, *(each for each in found.runners_up if each.candidate in shown))
    return Table.of("plans", "", rows, columns, left_out)


def _cost_columns(planned: Planned) -> list[Column[Priced]]:
    if planned.found.chosen.price.cost is None:
        return []
    return [
        Column("USD/h", lambda priced: three_digits(priced.price.figures.usd_per_h)),
        Column(usd_heading(planned.task.counted), lambda priced: three_digits(priced.price.figures.usd_per_million)),
    ]


def _table_of_stages(planned: Planned) -> Table | None:
    counted, chosen_per_s = planned.task.counted, planned.found.chosen.price.tokens_per_s

    def per_s(of_stages: OfStages) -> str:
        return "" if of_stages.found is None else three_digits(of_stages.found.chosen.price.tokens_per_s)

    def bound(of_stages: OfStages) -> str:
        if of_stages.found is not None or of_stages.at_most is None:
            return ""
        return f": {bound_text(planned.task.goal, of_stages.at_most, counted)}"

    def usd(of_stages: OfStages) -> str:
        return "" if of_stages.found is None else three_digits(of_stages.found.chosen.price.figures.usd_per_million)

    def of_chosen(of_stages: OfStages) -> str:
        found = of_stages.found
        return "" if found is None else percent_text(found.chosen.price.tokens_per_s / chosen_per_s)

    columns: list[Column[OfStages]] = [
        Column("stages", lambda each: str(each.stages)),
        Column(
            "DP-cells x\npipelines",
            lambda each: "" if each.found is None else _cells_text(each.found.chosen.candidate),
            form="text",
        ),
        Column(f"{counted}/s", per_s),
        Column("of the\nchosen", of_chosen),
        *([Column[OfStages](usd_heading(counted), usd)] if planned.found.chosen.price.cost is not None else []),
        Column("memory\nat most", _fullest_text),
        Column("not planned", lambda each: f"{each.why}{bound(each)}", form="text"),
    ]
    return Table.of("stages", "Numbers of stages", planned.of_stages, columns, "")


def _fullest_text(of_stages: OfStages) -> str:
    if of_stages.task is None or of_stages.found is None:
        return ""
    fullest = fullest_stage(of_stages.task, of_stages.found.chosen.candidate)
    return "" if fullest is None else f"{fullest[2].total_bytes / GIB:.1f} GiB"


def _bottleneck_text(priced: Priced) -> str:
    bottleneck = priced.price.bottleneck
    return "" if bottleneck is None else _part_text(bottleneck.path[0])


def _table_of_promises(unplanned: Unplanned) -> Table | None:
    columns: list[Column[tuple[Candidate, float]]] = [
        Column("DP-cells x\npipelines", lambda row: _cells_text(row[0]), form="text"),
        Column("stages", lambda row: _stages_text(row[0].runs), form="text"),
        Column("bound", lambda row: bound_text(unplanned.task.goal, row[1], unplanned.task.counted), form="text"),
    ]
    reading = "not simulated: no better than this, by the bound of each"
    return Table.of("promises", "", unplanned.promising, columns, reading)


def _cells_text(candidate: Candidate) -> str:
    return f"{candidate.dp_cells} x {candidate.pipelines_per_cell}"


def _stages_text(runs: Runs) -> str:
    """Return the stages of each datacenter as text: ``east: 0-2, west: 3``."""
    texts, first = [], 0
    for name, stages in runs:
        last = first + stages - 1
        texts.append(f"{name}: {first}" if stages == 1 else f"{name}: {first}-{last}")
        first = last + 1
    return ", ".join(texts)


def family_table(families: Sequence[FamilyPrice], task: PlanningTask) -> Table | None:
    """Return the table, the most tokens a second first; None without families."""
    columns: list[Column[FamilyPrice]] = [
        Column("family", lambda each: each.family, form="text"),
        Column("replicas", lambda each: each.layout, form="text"),
        Column("sequences\nan iteration", lambda each: str(each.sequences)),
        Column("iteration", lambda each: seconds_text(each.iteration_time_s)),
        Column(f"{task.counted}/s", lambda each: three_digits(each.counted_per_s)),
        Column("WAN\nan iteration", lambda each: size_text(each.wan_bytes)),
        *_family_cost_columns(families, task),
    ]
    ordered = sorted(families, key=lambda price: price.counted_per_s, reverse=True)
    return Table.of("families", "Ways to train", ordered, columns, "")


def _family_cost_columns(families: Sequence[FamilyPrice], task: PlanningTask) -> list[Column[FamilyPrice]]:
    if all(each.figures is None for each in families):
        return []
    return [
        Column("USD/h", lambda each: "" if each.figures is None else three_digits(each.figures.usd_per_h)),
        Column(
            usd_heading(task.counted),
            lambda each: "" if each.figures is None else three_digits(each.figures.usd_per_million),
        ),
    ]


def family_records(families: Sequence[FamilyPrice], task: PlanningTask) -> list[dict[str, Any]]:
    """Return the prices in plain JSON types. ``same_worth`` is whether a token teaches what one of a pipeline does."""
    records = []
    for each in families:
        record = asdict(each)
        record[f"{task.counted}_per_s"] = record.pop("counted_per_s")
        figures = record.pop("figures")
        if figures is not None:
            record["usd_per_h"] = figures["usd_per_h"]
            record[f"usd_per_million_{task.counted}"] = figures["usd_per_million"]
        records.append({**record, "family": each.family.value, "same_worth": same_worth(each.family)})
    return records


class PlanProgress:
    """Report how far a search is: what it has simulated, the best so far, and the time of how much.

    Output goes to ``stream`` (default: standard error). Use it as a context manager. ``clock`` returns seconds.
    """

    def __init__(self, *, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream or sys.stderr
        self._clock = clock
        self._reported_s = clock()
        self._status = Console(file=self._stream).status("planning") if self._stream.isatty() else None

    def __enter__(self) -> Self:
        if self._status:
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status:
            self._status.stop()

    def report(self, effort: Effort) -> None:
        """Show how far the search is. Call it as often as convenient."""
        if self._status:
            # Names come from users. Parsed as markup, they would lose parts such as "[x]".
            self._status.update(Text(progress_line(effort)))
        elif self._clock() - self._reported_s >= PLAIN_INTERVAL_S:
            self._reported_s = self._clock()
            print(f"wanbed: {progress_line(effort)}", file=self._stream, flush=True)


def progress_line(effort: Effort) -> str:
    """Return the state of a search as one line."""
    limits = effort.limits
    of_limit = "" if limits.time_s is None else f" of {_clock_time(limits.time_s)} of {limits.of.name}"
    simulated = count_text(effort.priced, "candidate")
    if effort.candidates is not None:
        simulated = f"{effort.priced} of {count_text(effort.candidates, 'candidate')}"
    parts = [
        f"{_clock_time(effort.elapsed_s)}{of_limit}",
        f"{simulated} simulated{'' if limits.simulations is None else f', at most {limits.simulations}'}",
    ]
    if effort.simulated is not None:
        parts.append(f"the next is at {round(100 * effort.simulated)} %")
    elif effort.examined:
        parts.append(f"{effort.examined:,} partial placements examined")
    if effort.best is not None:
        candidate, price = effort.best.candidate, effort.best.price
        gpus = count_text(candidate.gpus, "GPU")
        parts.append(
            f"best so far: {seconds_text(price.iteration_time_s)} an iteration on {gpus} in "
            f"{list_text(list(candidate.datacenters))}"
        )
    return "; ".join(parts)


def _clock_time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"

"""Show what ``wanbed run`` and ``wanbed simulate`` do: the trials that there would be, and what came out of them."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from wanbed.results.reading.changing_links import changing_links, changing_links_text
from wanbed.results.reading.divided_trunks import divided_trunks_text
from wanbed.results.reading.modelled_tcp import MODELLED_TCP, tcp_is_modelled
from wanbed.results.reading.not_modelled import NotModelled, not_modelled_text, of_links
from wanbed.results.reading.summaries.saturation import MachineLoad
from wanbed.results.reading.summaries.trial_faults import TrialFaults
from wanbed.results.report.table import Column, Table, TableCell
from wanbed.results.text.number_text import count_text
from wanbed.runner.cli.link_listing import link_documents, print_links
from wanbed.runner.cli.log_line import log
from wanbed.runner.cli.terminal import print_table, terminal
from wanbed.runner.resolve.experiment import Experiment
from wanbed.runner.runs.faults import TrialError

_ONE_ITERATION = (
    "A single iteration has a makespan and no iteration time, which is the time from the end of one to the end of the "
    "next: training.iterations: 2 or more"
)


def list_trials(experiment: Experiment, as_json: bool) -> None:
    """Print every trial in the order in which it would run, and the links of their networks."""
    points = {point.index: dict(point.values) for point in experiment.points()}
    trials = experiment.trials()
    if as_json:
        listed = [
            {"sweep_point": point, "swept": points[point], "variant": variant, "repeat": repeat}
            for point, variant, repeat in trials
        ]
        print(json.dumps({"run": None, "trials": listed, "links": link_documents(experiment)}, indent=2))
        return
    for point, variant, repeat in trials:
        values = ", ".join(f"{path}={value}" for path, value in points[point].items())
        print(f"{values or experiment.name}: {variant}, repeat {repeat}")
    print_links(experiment, terminal())


def show_outcome(path: Path, as_json: bool) -> bool:
    """Write a run's report and summary file and print the summary. Return whether its figures can be compared.

    They cannot if links or machine were not as they should be; the last line then says so. A simulation has neither.
    """
    # Drawing and data frames take a second to load, which --dry-run and a refused file spare.
    from wanbed.results.comparison.run_description import not_modelled_in  # noqa: PLC0415
    from wanbed.results.reading.run import load_run  # noqa: PLC0415
    from wanbed.results.reading.summaries.summary import summary_rows  # noqa: PLC0415
    from wanbed.results.reading.summaries.summary_table import write_summary  # noqa: PLC0415
    from wanbed.results.report.prefill.prefill_service import prefill_rows  # noqa: PLC0415
    from wanbed.results.report.report import write_report  # noqa: PLC0415
    from wanbed.runner.cli.ending import ending  # noqa: PLC0415
    from wanbed.runner.cli.prefill_outcome import prefill_documents, prefill_table, prefill_warnings  # noqa: PLC0415

    run = load_run(path, coded=True)
    write_summary(run)
    rows = summary_rows(run.summary)
    report = path / "report.html"
    write_report([run], report)
    prefill = prefill_rows(run)
    if as_json:
        served = {"prefill": prefill_documents(prefill)} if prefill else {}
        changing = [each.document() for each in changing_links(run.manifest)]
        changed = {"changing_links": changing} if changing else {}
        print(json.dumps({"run": str(path), "summary": rows, **served, **changed}, indent=2))
    else:
        console = terminal()
        print_table(_table(rows, simulated=run.simulated, without=not_modelled_in(run)), console)
        if any(row["iteration_time_s"] is None and row["makespan_s"] is not None for row in rows):
            console.print(Text(_ONE_ITERATION))
        if tcp_is_modelled(run.manifest):
            console.print(Text(MODELLED_TCP))
        if (divided := divided_trunks_text(run.manifest)) is not None:
            console.print(Text(divided))
        if (changing_text := changing_links_text(run.manifest)) is not None:
            console.print(Text(changing_text))
        print_table(prefill_table(prefill), console)
    for warning in prefill_warnings(prefill):
        log(warning)
    print(f"report: {report}", file=sys.stderr if as_json else sys.stdout, flush=True)
    if (line := ending(run, report)) is not None:
        log(line)
    return run.simulated or line is None


def check_trials(path: Path) -> None:
    """Raise TrialError if trials of a run have failed that nothing planned to: how many, and the first one's reason."""
    from wanbed.results.reading.run import load_run  # noqa: PLC0415

    trials = load_run(path, coded=True).trials
    failed = [trial for trial in trials if TrialFaults.of(trial.facts).failed_unplanned]
    if failed:
        first, reason = failed[0].title, TrialFaults.of(failed[0].facts).reason
        raise TrialError(f"{len(failed)} of {count_text(len(trials), 'trial')} failed, first {first}: {reason}")


def _caption(without: tuple[NotModelled, ...]) -> str:
    """Return the caption for a simulation: what its links were, and what else it did not model."""
    links, text = of_links(without), not_modelled_text(without)
    if links:
        return f"simulated, links NOT as configured: {text} not modelled"
    others = f"; not modelled: {text}" if without else ""
    return f"simulated: links as configured, by construction{others}"


_Row = Mapping[str, Any]


def _table(rows: Sequence[_Row], *, simulated: bool, without: tuple[NotModelled, ...]) -> Table | None:
    with_tokens = any(row["tokens_per_s"] is not None for row in rows)
    bounded = any(row["over_bound"] is not None for row in rows)
    judged = not simulated or bool(of_links(without))
    columns: list[Column[_Row]] = [
        Column("sweep point", _where, form="text"),
        Column("variant", lambda row: row["variant"], form="text"),
        Column("iteration\nseconds", lambda row: _figure(row["iteration_time_s"], ".3f")),
        Column("makespan\nseconds", lambda row: _figure(row["makespan_s"], ".3f")),
        *([Column("iteration /\nlower bound", _over_bound, form="text")] if bounded else []),
        Column("GPU\nutilization", lambda row: _figure(row["gpu_utilization"], ".1%")),
        Column("WAN MB in\nthe trial", lambda row: _figure(row["wan_bytes"], ".1f", 1e6)),
        *([Column[_Row]("tokens/s", lambda row: _figure(row["tokens_per_s"], ".0f"))] if with_tokens else []),
        *([Column("links as\nconfigured", _standing, form="figure")] if judged else []),
    ]
    return Table.of("trials", "", rows, columns, _caption(without) if simulated else "")


def _where(row: _Row) -> str:
    return ", ".join(f"{path.rpartition('.')[2]} {value}" for path, value in row["swept"].items())


def _standing(row: _Row) -> str:
    """Return whether the trial's links were as configured, and whether its machine kept up, as text."""
    load = MachineLoad(row["cores_saturated_fraction"], row["network_core_busy_fraction"])
    links = "yes" if row["calibrated"] else "NO"
    return f"{links}, SATURATED: {load.mark}" if load.saturated else links


def _over_bound(row: _Row) -> TableCell:
    """Return how far the iteration is above its lower bound, and beneath it what the bound consists of."""
    over, part = row["over_bound"], row["bound_part"]
    return TableCell("unknown") if over is None else TableCell(f"{over:.2f}x", (part,))


def _figure(value: float | None, form: str, unit: float = 1) -> str:
    return "unknown" if value is None else format(value / unit, form)

"""Show what ``wanbed run`` and ``wanbed simulate`` do: the trials that there would be, and what came out of them."""

import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from wanbed.results.reading.changing_links import changing_links, changing_links_text
from wanbed.results.reading.divided_trunks import divided_trunks_text
from wanbed.results.reading.modelled_tcp import MODELLED_TCP, tcp_is_modelled
from wanbed.results.reading.not_modelled import NotModelled, not_modelled_text, of_links
from wanbed.results.reading.summaries.saturation import MachineLoad
from wanbed.results.reading.summaries.trial_faults import TrialFaults
from wanbed.results.text.number_text import count_text
from wanbed.runner.cli.link_listing import link_documents, print_links
from wanbed.runner.cli.log_line import log
from wanbed.runner.resolve.experiment import Experiment
from wanbed.runner.runs.faults import TrialError

_WIDTH = 120
"""The width of tables that go to a file or a pipe."""
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
    print_links(experiment, _console())


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
        console = _console()
        console.print(_table(rows, simulated=run.simulated, without=not_modelled_in(run)))
        if any(row["iteration_time_s"] is None and row["makespan_s"] is not None for row in rows):
            console.print(Text(_ONE_ITERATION))
        if tcp_is_modelled(run.manifest):
            console.print(Text(MODELLED_TCP))
        if (divided := divided_trunks_text(run.manifest)) is not None:
            console.print(Text(divided))
        if (changing_text := changing_links_text(run.manifest)) is not None:
            console.print(Text(changing_text))
        if prefill:
            console.print(prefill_table(prefill))
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


def _console() -> Console:
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_WIDTH)


def _caption(without: tuple[NotModelled, ...]) -> Text:
    """Return the caption for a simulation: what its links were, and what else it did not model."""
    links, text = of_links(without), not_modelled_text(without)
    if links:
        return Text(f"simulated, links NOT as configured: {text} not modelled")
    others = f"; not modelled: {text}" if without else ""
    return Text(f"simulated: links as configured, by construction{others}")


def _table(rows: list[dict[str, Any]], *, simulated: bool, without: tuple[NotModelled, ...]) -> Table:
    table = Table(caption=_caption(without) if simulated else None, caption_justify="left")
    judged = not simulated or bool(of_links(without))
    for heading in ("sweep point", "variant"):
        table.add_column(heading)
    with_tokens = any(row["tokens_per_s"] is not None for row in rows)
    bounded = any(row["over_bound"] is not None for row in rows)
    for heading in ("iteration\nseconds", "makespan\nseconds"):
        table.add_column(heading, justify="right", no_wrap=True)
    if bounded:
        table.add_column("iteration /\nlower bound")
    for heading in ("GPU\nutilization", "WAN MB in\nthe trial", *(["tokens/s"] if with_tokens else [])):
        table.add_column(heading, justify="right", no_wrap=True)
    if judged:
        table.add_column("links as\nconfigured", justify="right", no_wrap=True)
    for row in rows:
        measured = [_standing(row)] if judged else []
        table.add_row(
            Text(", ".join(f"{path.rpartition('.')[2]} {value}" for path, value in row["swept"].items())),
            Text(row["variant"]),
            _figure(row["iteration_time_s"], ".3f"),
            _figure(row["makespan_s"], ".3f"),
            *([Text(_over_bound(row))] if bounded else []),
            _figure(row["gpu_utilization"], ".1%"),
            _figure(None if row["wan_bytes"] is None else row["wan_bytes"] / 1e6, ".1f"),
            *([_figure(row["tokens_per_s"], ".0f")] if with_tokens else []),
            *measured,
        )
    return table


def _standing(row: dict[str, Any]) -> str:
    """Return whether the trial's links were as configured, and whether its machine kept up, as text."""
    load = MachineLoad(row["cores_saturated_fraction"], row["network_core_busy_fraction"])
    links = "yes" if row["calibrated"] else "NO"
    return f"{links}, SATURATED: {load.mark}" if load.saturated else links


def _over_bound(row: dict[str, Any]) -> str:
    """Return how far the iteration is above its lower bound, and beneath it what the bound consists of."""
    return "unknown" if row["over_bound"] is None else f"{row['over_bound']:.2f}x\n{row['bound_part']}"


def _figure(value: float | None, form: str) -> str:
    return "unknown" if value is None else format(value, form)

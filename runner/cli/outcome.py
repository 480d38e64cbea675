"""Show what came out of a run: its summary, its prefill, and in one line why its figures need care.

Data frames, which load slowly, are loaded with this module: a command imports it after its run.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from wanbed.results.comparison.run_description import not_modelled_in
from wanbed.results.reading.known_misses import known_misses_of, known_misses_text
from wanbed.results.reading.links import changing_links, changing_links_text
from wanbed.results.reading.not_modelled import NotModelled, not_modelled_text, of_links
from wanbed.results.reading.prefill import PrefillRow, prefill_figures, prefill_rows
from wanbed.results.reading.run import Run, load_run
from wanbed.results.reading.stored_trial import TrialFaults
from wanbed.results.reading.summary import summary_rows, write_summary
from wanbed.results.reading.validity import MODELLED_TCP, MachineLoad, WaysAround, divided_trunks_text, tcp_is_modelled
from wanbed.results.records.written_spans import WrittenSpans
from wanbed.results.report.report import write_report
from wanbed.results.report.table import Column, Table, TableCell
from wanbed.results.text import UNKNOWN, count_text, list_text, percent_text, seconds_text, three_digits
from wanbed.runner.cli.exit_status import log, reporting
from wanbed.runner.cli.terminal import print_table, terminal
from wanbed.runner.runs.faults import TrialError

_ONE_ITERATION = (
    "A single iteration has a makespan and no iteration time, which is the time from the end of one to the end of the "
    "next: training.iterations: 2 or more"
)
_MOST_LINKS_NAMED = 3
MANY_UNFINISHED = 0.05
"""The largest share of the admitted prefill requests that may be unfinished without a warning."""


def show_outcome(path: Path, as_json: bool, written: WrittenSpans | None = None) -> bool:
    """Write a run's report and summary file and print the summary. Return whether its figures can be compared.

    ``written`` has spans of it that this process has written.

    They cannot if links or machine were not as they should be; the last line then says so. A simulation has neither.
    """
    with reporting(path):
        return _shown(path, as_json, written)


def _shown(path: Path, as_json: bool, written: WrittenSpans | None) -> bool:
    run = load_run(path, coded=True, written=written)
    write_summary(run.summary, run.path)
    rows = summary_rows(run.summary)
    report = path / "report.html"
    write_report([run], report)
    prefill = prefill_rows(run)
    if as_json:
        served = {"prefill": _prefill_documents(prefill)} if prefill else {}
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
    if (line := _ending(run, report)) is not None:
        log(line)
    return run.simulated or line is None


def check_trials(path: Path) -> None:
    """Raise TrialError if trials of a run have failed that nothing planned to: how many, and the first one's reason."""
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
    priced = any(row["usd_per_h"] is not None for row in rows)
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
        *(_cost_columns(with_tokens=with_tokens) if priced else []),
        *([Column("links as\nconfigured", _standing, form="figure")] if judged else []),
    ]
    return Table.of("trials", "", rows, columns, _caption(without) if simulated else "")


def _cost_columns(*, with_tokens: bool) -> list[Column[_Row]]:
    hourly = Column[_Row]("USD/h", lambda row: _digits(row["usd_per_h"]))
    if not with_tokens:
        return [hourly]
    return [hourly, Column("USD/M\ntokens", lambda row: _digits(row["usd_per_million_tokens"]))]


def _digits(value: float | None) -> str:
    return UNKNOWN if value is None else three_digits(value)


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


def _ending(run: Run, report: Path) -> str | None:
    """Return the line for a run whose links or machine were not as configured, None for a good run.

    Of a simulation it says which trials are of kinds whose simulations are known to be off.
    """
    if run.simulated:
        return _known_to_be_off(run, report)
    facts = [fact for fact in (_links_outside(run), _around(run), _saturated_trials(run)) if fact is not None]
    if not facts:
        return None
    remedy = "run again on a machine that does nothing else, or with lower rates"
    if _goes_in_virtual_time(run):
        remedy = "run again on a machine that does nothing else, with lower rates, or with --clock virtual"
    if run.manifest.get("engine") == "rack":
        remedy = "run again on machines that do nothing else, or with lower rates"
    if run.manifest.get("clock") == "virtual":
        remedy = "compare the links in the report with the file"
    return f"{' and '.join(facts)}: do not compare these figures; {remedy}; report: {report}"


def _goes_in_virtual_time(run: Run) -> bool:
    """Return whether nothing in the run's file is refused in virtual time: programs, what really computes, dilation."""
    written = run.manifest.get("experiment") or {}
    replayed = (written.get("compute") or {}).get("kind", "replay") == "replay"
    as_it_is = written.get("dilation", "auto") in {"auto", 1}
    return replayed and as_it_is and all(trial.program is None for trial in run.trials)


def _known_to_be_off(run: Run, report: Path) -> str | None:
    of_trials = [known_misses_of(trial.facts) for trial in run.trials]
    marked = sum(map(bool, of_trials))
    if not marked:
        return None
    text = known_misses_text(miss for found in of_trials for miss in found)
    return (
        f"{marked} of {count_text(len(of_trials), 'trial')} are of kinds whose simulation is known to be off from "
        f"virtual time: {text}; run with --clock virtual where that matters; report: {report}"
    )


def _links_outside(run: Run) -> str | None:
    rows = run.calibration
    outside = rows[~rows["within_tolerance"].astype(bool)]
    measured = set(rows["sweep_point"])
    unmeasured = {trial.point for trial in run.trials} - measured
    if outside.empty:
        return f"the links of {count_text(len(unmeasured), 'sweep point')} were not measured" if unmeasured else None
    named = dict.fromkeys(
        f"inside {row.source}" if row.scope == "intra" else f"{row.source} to {row.destination}"
        for row in outside.itertuples()
    )
    names = list(named)[:_MOST_LINKS_NAMED]
    if more := len(named) - len(names):
        names.append(f"{more} more")
    points = set(outside["sweep_point"])
    where = f" at {len(points)} of {len(measured)} sweep points" if len(measured) > 1 else ""
    return f"{len(outside)} of {count_text(len(rows), 'link')} outside tolerance{where} ({list_text(names)})"


def _around(run: Run) -> str | None:
    around = [ways for trial in run.trials if (ways := WaysAround.of(trial.facts)).used]
    return f"in {len(around)} of {count_text(len(run.trials), 'trial')} {around[0].sentence}" if around else None


def _saturated_trials(run: Run) -> str | None:
    saturated = [trial for trial in run.trials if MachineLoad.of(trial.facts).saturated]
    if not saturated:
        return None
    variants = list_text(list(dict.fromkeys(trial.variant for trial in saturated)))
    return f"the machine was saturated in {len(saturated)} of {count_text(len(run.trials), 'trial')} ({variants})"


def _prefill_documents(rows: Sequence[PrefillRow]) -> list[dict[str, Any]]:
    """Return the exact figures of each row in plain JSON types."""
    return [
        {"sweep_point": row.point, "swept": dict(row.values), "variant": row.variant, **prefill_figures(row)}
        for row in rows
    ]


def prefill_table(rows: Sequence[PrefillRow]) -> Table | None:
    """Return a table with a line for each sweep point and variant with prefill, None without any."""
    columns: list[Column[PrefillRow]] = [
        Column("sweep point", lambda row: row.where, form="text"),
        Column("variant", lambda row: row.variant, form="text"),
        Column("TTFT\np50", lambda row: seconds_text(row.ttft.whole_s[50])),
        Column("TTFT\np99", lambda row: seconds_text(row.ttft.whole_s[99])),
        Column("requests", lambda row: str(row.counts["offered"])),
        Column("admitted", lambda row: _share(_admitted(row), row.counts["offered"])),
        Column("unfinished", lambda row: _share(row.counts["unfinished"], _admitted(row))),
    ]
    return Table.of("prefill", "", rows, columns, "prefill: requests that arrived after training's warm-up")


def prefill_warnings(rows: Sequence[PrefillRow]) -> Iterator[str]:
    """Yield a line that names the rows without a request, and one for those with many unfinished requests."""
    if none := [row for row in rows if not row.counts["offered"]]:
        yield (
            f"prefill: no request arrived in the {min(row.window_s for row in none):.3g} s after training's warm-up "
            f"({_named(none)}): check the unit of the trace's arrivals, give a higher rate, or more iterations"
        )
    if many := [row for row in rows if row.counts["unfinished"] > MANY_UNFINISHED * _admitted(row)]:
        yield (
            f"prefill: more than {MANY_UNFINISHED:.0%} of the admitted requests had not finished when the trial "
            f"ended, so that their TTFTs are missing and the percentiles too low ({_named(many)}): give a lower rate, "
            "or more iterations"
        )


def _named(rows: Sequence[PrefillRow]) -> str:
    return "; ".join(", ".join(filter(None, (row.where, row.variant))) for row in rows)


def _admitted(row: PrefillRow) -> int:
    """Return the number of requests that were admitted, those that were off-loaded to a pool included."""
    return row.counts["admitted"] + row.counts["off_loaded"]


def _share(part: int, whole: int) -> str:
    return f"{part} ({percent_text(part / whole) if whole else UNKNOWN})"

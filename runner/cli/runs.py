"""``wanbed runs``: list the runs in a folder, choose among them, and remove some."""

import json
import re
import sys
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wanbed.ground.errors import InputError, one_line, shortened
from wanbed.results.report.table import Column, Table, TableCell
from wanbed.results.text import count_text, interval_text, size_text
from wanbed.runner.cli.arguments import AsJson, path_of
from wanbed.runner.cli.exit_status import log, one_line_errors
from wanbed.runner.cli.terminal import print_table, terminal

if TYPE_CHECKING:
    from wanbed.runner.runs.stored_runs import StoredRun

_RUNS = "runs"

_BEYOND_DATES = "beyond the dates that a computer counts: give a shorter age, or a day nearer to today"

_AGES = (("w", timedelta(weeks=1)), ("d", timedelta(days=1)), ("h", timedelta(hours=1)), ("min", timedelta(minutes=1)))


def runs(
    chosen: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN...",
            help="Only these runs, by path or by name in the folder (default: all).",
            autocompletion=lambda: _names(Path(_RUNS)),
        ),
    ] = None,
    *,
    folder: Annotated[
        Path, typer.Option("--runs", metavar="DIR", parser=path_of("--runs"), help="The folder of runs.")
    ] = Path(_RUNS),
    experiment: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only runs of this experiment; * stands for any text.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="AGE", help="Only runs begun since: 30min, 12h, 2d, 1w, or a day like 2026-01-31."),
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the runs that are named.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Remove without asking.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the runs in a folder, or remove some of them.

    A run that is damaged is listed as such. A folder that is no run, a link, and a run that is being written are not
    removed; if one of several cannot be, none is.
    """
    with one_line_errors():
        from wanbed.runner.runs.stored_runs import run_at, stored_run, stored_runs

        begun = None if since is None else _begun(since)
        if remove:
            if not chosen or experiment is not None or since is not None:
                raise InputError("--remove: give the runs to remove by path or name, and no --experiment or --since")
            _remove(list(dict.fromkeys(run_at(text, folder) for text in chosen)), yes=yes, as_json=as_json)
            return
        found = [stored_run(run_at(text, folder)) for text in chosen] if chosen else stored_runs(folder)
        found = [
            run
            for run in found
            if (experiment is None or fnmatchcase(run.experiment or "", experiment))
            and (begun is None or (run.created is not None and run.created >= begun))
        ]
        if as_json:
            print(json.dumps({"runs": [_document(run) for run in found]}, indent=2))
        elif found:
            _print(found)
        else:
            print(f"no such runs in {folder}" if experiment or since else f"no runs in {folder}")


def _names(folder: Path) -> list[str]:
    from wanbed.runner.runs.stored_runs import is_run

    return [path.name for path in folder.iterdir() if is_run(path)]


def _begun(text: str) -> datetime:
    """Return the time that ``--since`` means."""
    try:
        if (age := re.fullmatch(r"(\d{1,9})(min|h|d|w)", text, re.ASCII)) is not None:
            return datetime.now(UTC) - int(age[1]) * dict(_AGES)[age[2]]
        day = datetime.fromisoformat(text)
    except OverflowError:
        raise InputError(f"--since {text}: {_BEYOND_DATES}") from None
    except ValueError:
        raise InputError(
            f"--since {shortened(text)}: give an age like 30min, 12h, 2d or 1w, or a day like 2026-01-31"
        ) from None
    try:
        return day.astimezone()
    except (ValueError, OverflowError):
        raise InputError(f"--since {text}: {_BEYOND_DATES}") from None


def _remove(paths: list[Path], *, yes: bool, as_json: bool) -> None:
    from wanbed.runner.runs.stored_runs import check_removable, remove_run, stored_run

    for path in paths:
        check_removable(path)
    if not yes:
        if not _can_ask():
            raise InputError("--remove: nobody can be asked here: give --yes to remove without asking")
        size = size_text(sum(stored_run(path).size_bytes for path in paths))
        for path in paths:
            print(one_line(str(path)), file=sys.stderr)
        if not typer.confirm(f"Remove {count_text(len(paths), 'run')} ({size})?", err=True):
            log("nothing was removed")
            return
    for path in paths:
        remove_run(path)
        if not as_json:
            print(f"removed {one_line(str(path))}")
    if as_json:
        print(json.dumps({"removed": [str(path) for path in paths]}, indent=2))


def _can_ask() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def _document(run: "StoredRun") -> dict[str, Any]:
    return {
        "run": str(run.path),
        "experiment": run.experiment,
        "created": None if run.created is None else run.created.astimezone(UTC).isoformat(),
        "engine": run.engine,
        "clock": run.clock,
        "state": run.state,
        "damage": run.damage,
        "finished_trials": run.finished_trials,
        "planned_trials": run.planned_trials,
        "shortest_iteration_time_s": None if run.iteration_times_s is None else run.iteration_times_s[0],
        "longest_iteration_time_s": None if run.iteration_times_s is None else run.iteration_times_s[1],
        "size_bytes": run.size_bytes,
    }


def _print(found: "list[StoredRun]") -> None:
    columns: list[Column[StoredRun]] = [
        # A run's name starts with that of its experiment.
        Column("run", lambda run: one_line(run.path.name), form="path"),
        Column("age", lambda run: "" if run.created is None else _age_text(datetime.now(UTC) - run.created)),
        Column(
            "clock", lambda run: "simulated" if run.engine == "simulate" else one_line(run.clock or ""), form="name"
        ),
        Column("trials", _trials, form="figure"),
        Column("iteration", lambda run: "" if run.iteration_times_s is None else interval_text(*run.iteration_times_s)),
        Column("size", lambda run: size_text(run.size_bytes)),
    ]
    print_table(Table.of("runs", "", found, columns, ""), terminal())
    for run in found:
        if run.damage is not None:
            log(f"{run.path}: damaged: {run.damage}")


def _age_text(age: timedelta) -> str:
    unit, length = next(((unit, length) for unit, length in _AGES if age >= length), _AGES[-1])
    return f"{max(0, age // length)} {unit}"


def _trials(run: "StoredRun") -> TableCell:
    if run.finished_trials is None:
        return TableCell(run.state, bad=True)
    trials = f"{run.finished_trials}/{run.planned_trials or '?'}"
    return TableCell(trials) if run.state == "complete" else TableCell(f"{run.state}, {trials}", bad=True)

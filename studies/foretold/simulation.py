"""Simulate the rows of sources through wanbed's public API, several experiments at a time."""

import json
import logging
import multiprocessing
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import wanbed
from studies.foretold.outcome import Outcome
from studies.foretold.source import Row

_Task = tuple[str, str]
"""The path of an experiment file, and the values that replace some of its own, as JSON."""

Figures = Mapping[tuple[str, str], list[float]]
"""The figures of each variant and column of a run's summary, one for each sweep point."""


def simulated(rows: Sequence[Row], runs: Path, log: Callable[[str], None]) -> list[Outcome]:
    """Return the outcome of each row, in order. Rows that share an experiment share its run, below ``runs``.

    Raise what wanbed raises for an experiment that it refuses, and KeyError for a variant or column that it has not.
    """
    tasks = list(dict.fromkeys(map(_task, rows)))
    columns = sorted({row.form.column for row in rows})
    found: dict[_Task, Figures] = {}
    log(f"foretold: {len(rows)} figures of {len(tasks)} experiments")
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(len(os.sched_getaffinity(0)), max(len(tasks), 1)), mp_context=context) as processes:
        waited = {processes.submit(_figures, *task, columns, runs): task for task in tasks}
        try:
            for done, each in enumerate(as_completed(waited), 1):
                found[waited[each]] = each.result()
                if done % 20 == 0 or done == len(tasks):
                    log(f"foretold: {done} of {len(tasks)} experiments")
        except BaseException:
            processes.shutdown(cancel_futures=True)
            raise
    return [Outcome(row, figure_of(row, found[_task(row)])) for row in rows]


def _task(row: Row) -> _Task:
    return str(row.experiment), json.dumps(row.values, sort_keys=True)


def _figures(file: str, values: str, columns: Sequence[str], runs: Path) -> Figures:
    logging.getLogger("wanbed").setLevel(logging.ERROR)
    experiment = wanbed.Experiment.from_file(file, json.loads(values))
    return figures_of(wanbed.simulate(experiment, runs=runs, jobs=1), columns)


def figures_of(run: wanbed.Run, columns: Sequence[str]) -> Figures:
    """Return the figures of a run's summary."""
    by_variant: Any = run.summary.sort_values("sweep_point").groupby("variant", observed=True, sort=False)
    return {
        (str(variant), column): own[column].astype(float).tolist() for variant, own in by_variant for column in columns
    }


def figure_of(row: Row, figures: Figures) -> float:
    """Return the figure of a row, from those of the run of its experiment. Raise KeyError if it has none."""
    own = figures[row.variant, row.form.column]
    total = sum(weight * figure for weight, figure in zip(row.weights, own, strict=True))
    return total if row.form.amount is None else row.form.amount / total

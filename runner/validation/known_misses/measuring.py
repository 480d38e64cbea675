"""Compare a run in virtual time with a simulation of the same experiment, trial by trial, in every figure."""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from wanbed.ground.strict_model import InputError
from wanbed.results.reading.headline import headline
from wanbed.results.reading.known_misses import ALL_ITERATIONS, GOODPUT, ITERATIONS
from wanbed.results.reading.run import Run
from wanbed.results.report.background_table import background_rows
from wanbed.runner.validation.known_misses.measured_cells import COLUMNS
from wanbed.testbed.network.topology import Topology


@dataclass(frozen=True)
class CellRow:
    """A row of the table of measured cells: one figure of one variant at one sweep point."""

    experiment: str
    sweep_point: int
    variant: str
    figure: str
    virtual: float
    simulated: float


def compared_rows(experiment: str, topologies: Sequence[Topology], virtual: Run, simulated: Run) -> Iterator[CellRow]:
    """Yield the rows of an experiment, whose sweep points have ``topologies``, in order of the simulated trials.

    Where links change, all measured iterations count together, elsewhere their median; and the goodput of each flow in
    the background. Raise InputError if the runs are of different trials, or a trial has no measured iteration.
    """
    times = [_times_s(run, topologies) for run in (virtual, simulated)]
    goodputs = [_goodputs_bps(run) for run in (virtual, simulated)]
    for found in (times, goodputs):
        if found[0].keys() != found[1].keys():
            raise InputError(f"{virtual.path} and {simulated.path} are not of the same trials: run both anew")
    for (point, variant), simulated_s in times[1].items():
        figure = ALL_ITERATIONS if topologies[point].changes else ITERATIONS
        yield CellRow(experiment, point, variant, figure, times[0][point, variant], simulated_s)
    for (point, variant, flow), simulated_bps in goodputs[1].items():
        yield CellRow(experiment, point, variant, GOODPUT, goodputs[0][point, variant, flow], simulated_bps)


def rows_text(rows: Sequence[CellRow]) -> str:
    """Return the rows as CSV with a heading."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        figures = (f"{value:.9g}" for value in (row.virtual, row.simulated))
        writer.writerow((row.experiment, row.sweep_point, row.variant, row.figure, *figures))
    return buffer.getvalue()


def _times_s(run: Run, topologies: Sequence[Topology]) -> dict[tuple[int, str], float]:
    medians_s = {(row.point, row.variant): row.iteration_time_s for row in headline(run)}
    found = {}
    for key, median_s in medians_s.items():
        point, variant = key
        own = run.summary[(run.summary["sweep_point"] == point) & (run.summary["variant"] == variant)]
        together_s = sum(sum(times_s) for times_s in own["iteration_times_s"])
        if not median_s or not together_s:
            raise InputError(f"{run.path}: the trials of {variant!r} hold no measured iteration: run it anew")
        found[key] = together_s if topologies[point].changes else median_s
    return found


def _goodputs_bps(run: Run) -> dict[tuple[int, str, str], float]:
    points = {row.where: row.point for row in headline(run)}
    found = {}
    for row in background_rows(run):
        if not row.goodput_bps:
            raise InputError(
                f"{run.path}: nothing is known of the flow {row.flow!r} beside {row.variant!r}: run it anew"
            )
        found[points[row.where], row.variant, row.flow] = row.goodput_bps
    return found

"""Read the trials that were measured in virtual time and simulated, each with its known misses, and compare new ones.

The trials in the repository are those of random experiments, of the paper's experiments, and of the experiments made
for known misses. Those whose packets were followed were simulated by their mean, too.
"""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TypeVar

from wanbed.ground.errors import InputError
from wanbed.results.reading.headline import headline
from wanbed.results.reading.known_misses import ALL_ITERATIONS, GOODPUT, ITERATIONS, KnownMiss
from wanbed.results.reading.run import Run
from wanbed.results.report.background_table import background_rows
from wanbed.runner.planner.experiment_file import load_experiment, parse_experiment
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.resolve.known_misses import disagreement, misses_of
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.validation.agreement import read_agreement, read_random_agreement
from wanbed.runner.validation.random_experiments import draw_experiment
from wanbed.testbed.network.topology import Topology

DRAWN = ("random", "held-out")
"""The folders with random experiments: those that the simulator was looked at with, and others."""

_PAPER = "paper"
_OWN = "known-misses"
MEAN = "mean"
"""The folder with the trials whose packets were followed, by their mean, each by the folder that has it otherwise."""
_CELLS_FILE = "cells.csv"
_COLUMNS = ("experiment", "sweep_point", "variant", "figure", "virtual", "simulated")


@dataclass(frozen=True)
class Cell:
    """One figure of one trial, in virtual time and simulated: ``virtual`` and ``simulated`` in the same unit.

    ``source`` is the folder of reference results that it is from. ``figure`` is what was compared, and
    ``by_mean`` what it is by the mean of connections, if packets were followed.
    """

    source: str
    experiment: str
    point: SweepPoint
    variant: str
    figure: str
    virtual: float
    simulated: float
    by_mean: float | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """Its place in the table of figures by mean, and what was compared."""
        return self.source, self.experiment, str(self.point.index), self.variant, self.figure

    @property
    def error(self) -> float:
        """``simulated / virtual - 1``."""
        return self.simulated / self.virtual - 1

    @property
    def name(self) -> str:
        """The experiment, with the swept values and the variant where it has several."""
        values = (value for value in self.point.values.values())
        return ", ".join((self.experiment, *values, *([self.variant] if len(self.point.variants) > 1 else [])))

    @property
    def misses(self) -> tuple[KnownMiss, ...]:
        """The known misses that apply to its simulation."""
        variant = self.point.variant(self.variant)
        told = misses_of(self.point.topology, variant, self.point.iterations(variant))
        return told if self.by_mean is None else (*told, *disagreement(self.simulated, self.by_mean))


def measured_cells(reference: Path, paper_experiments: Path) -> Iterator[Cell]:
    """Yield every cell below ``reference``. ``paper_experiments`` has the files of the paper's experiments.

    Raise InputError, one line, for a file that cannot be read.
    """
    by_mean = dict(_figures_by_mean(reference / MEAN))
    drawn = (cell for folder in DRAWN for cell in _drawn_cells(reference / folder))
    for cell in (*drawn, *_own_cells(reference / _OWN), *_paper_cells(reference / _PAPER, paper_experiments)):
        simulated = by_mean.get(cell.key)
        if simulated is None:
            yield cell
        else:
            yield replace(cell, by_mean=simulated)
            yield replace(cell, source=MEAN, point=_by_mean(cell.point), simulated=simulated)


def _drawn_cells(folder: Path) -> Iterator[Cell]:
    """Yield the cells of the random experiments whose results are in that folder."""
    agreement = read_random_agreement(folder)
    for each in agreement.results:
        (point,) = parse_experiment(draw_experiment(agreement.seed, each.number), each.name, folder).points()
        (variant,) = point.variants
        yield Cell(folder.name, each.name, point, variant.name, ITERATIONS, each.virtual_s, each.simulated_s)


def _own_cells(folder: Path) -> Iterator[Cell]:
    """Yield the cells of the experiments that are made for known misses."""
    points = _Points(folder / "experiments")
    with (folder / _CELLS_FILE).open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            point = points.of(row["experiment"], int(row["sweep_point"]))
            figures = float(row["virtual"]), float(row["simulated"])
            yield Cell(folder.name, row["experiment"], point, row["variant"], row["figure"], *figures)


def _paper_cells(folder: Path, experiments: Path) -> Iterator[Cell]:
    """Yield the cells of the paper's experiments."""
    points = _Points(experiments)
    for compared in read_agreement(folder).experiments:
        for each in compared.comparisons:
            point = points.of(compared.experiment, each.point)
            figures = each.emulated_s, each.simulated_s
            yield Cell(folder.name, compared.experiment, point, each.variant, ITERATIONS, *figures)


def _figures_by_mean(folder: Path) -> Iterator[tuple[tuple[str, ...], float]]:
    """Yield the ``key`` of each cell in the folder's table, and its iteration time by the mean of connections."""
    with (folder / _CELLS_FILE).open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            key = row["source"], row["experiment"], row["sweep_point"], row["variant"], ITERATIONS
            yield key, float(row["simulated"])


def _by_mean(point: SweepPoint) -> SweepPoint:
    """Return the point with all variants followed by the mean of their connections."""
    return replace(point, variants=tuple(_with_mean(variant) for variant in point.variants))


_Resolved = TypeVar("_Resolved", bound=ResolvedVariant)


def _with_mean(variant: _Resolved) -> _Resolved:
    transport = variant.transport.model_copy(update={"model": "mean"})
    followed = replace(variant, spec=variant.spec.model_copy(update={"transport": transport}))
    if not isinstance(followed, PipelineVariant):
        return followed
    others = tuple(_with_mean(other) for other in followed.beside)
    return replace(followed, jobs=replace(followed.jobs, others=others))


class _Points:
    """The sweep points of the experiments in a folder, each file read once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read = cache(self._resolved)

    def of(self, experiment: str, index: int) -> SweepPoint:
        """Return a sweep point of the experiment of that name, as an emulation of it has it."""
        return self._read(experiment)[index]

    def _resolved(self, experiment: str) -> Mapping[int, SweepPoint]:
        points = load_experiment(self._folder / f"{experiment}.yaml").points()
        return {point.index: point for point in points}


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
    writer.writerow(_COLUMNS)
    for row in rows:
        figures = (f"{value:.9g}" for value in (row.virtual, row.simulated))
        writer.writerow((row.experiment, row.sweep_point, row.variant, row.figure, *figures))
    return buffer.getvalue()


def _times_s(run: Run, topologies: Sequence[Topology]) -> dict[tuple[int, str], float]:
    medians_s = {(row.point, row.variant): row.times.median_s for row in headline(run)}
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

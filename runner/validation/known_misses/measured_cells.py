"""Read the trials in the repository that were measured in virtual time and simulated, each with its known misses.

They are those of random experiments, of the paper's experiments, and of the experiments made for known misses.
"""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from wanbed.results.reading.known_misses import ITERATIONS, KnownMiss
from wanbed.runner.known_misses import misses_of
from wanbed.runner.planner.experiment_file import load_experiment, parse_experiment
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.validation.agreement import read_agreement
from wanbed.runner.validation.random.random_agreement import read_random_agreement
from wanbed.runner.validation.random.random_experiments import draw_experiment

DRAWN = ("random", "held-out")
"""The folders with random experiments: those that the simulator was looked at with, and others."""
PAPER = "paper"
OWN = "known-misses"
CELLS_FILE = "cells.csv"
COLUMNS = ("experiment", "sweep_point", "variant", "figure", "virtual", "simulated")


@dataclass(frozen=True)
class Cell:
    """One figure of one trial, in virtual time and simulated: ``virtual`` and ``simulated`` in the same unit.

    ``source`` is the folder of reference results that it is from. ``figure`` is what was compared.
    """

    source: str
    experiment: str
    point: SweepPoint
    variant: str
    figure: str
    virtual: float
    simulated: float

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
        return misses_of(self.point.topology, self.point.variant(self.variant))


def measured_cells(reference: Path, paper_experiments: Path) -> Iterator[Cell]:
    """Yield every cell below ``reference``. ``paper_experiments`` has the files of the paper's experiments.

    Raise InputError, one line, for a file that cannot be read.
    """
    for folder in DRAWN:
        yield from drawn_cells(reference / folder)
    points = _Points(paper_experiments)
    for compared in read_agreement(reference / PAPER).experiments:
        for each in compared.comparisons:
            point = points.of(compared.experiment, each.point)
            yield Cell(PAPER, compared.experiment, point, each.variant, ITERATIONS, each.emulated_s, each.simulated_s)
    yield from own_cells(reference / OWN)


def drawn_cells(folder: Path) -> Iterator[Cell]:
    """Yield the cells of the random experiments whose results are in that folder."""
    agreement = read_random_agreement(folder)
    for each in agreement.results:
        (point,) = parse_experiment(draw_experiment(agreement.seed, each.number), each.name, folder).points()
        (variant,) = point.variants
        yield Cell(folder.name, each.name, point, variant.name, ITERATIONS, each.virtual_s, each.simulated_s)


def own_cells(folder: Path) -> Iterator[Cell]:
    """Yield the cells of the experiments that are made for known misses."""
    points = _Points(folder / "experiments")
    with (folder / CELLS_FILE).open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            point = points.of(row["experiment"], int(row["sweep_point"]))
            figures = float(row["virtual"]), float(row["simulated"])
            yield Cell(folder.name, row["experiment"], point, row["variant"], row["figure"], *figures)


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

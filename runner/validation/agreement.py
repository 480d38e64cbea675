"""Measure how far the simulator agrees with experiments in virtual time, and store the result as a file.

In virtual time the machine disturbs nothing, so the limits are tighter than those for the real clock.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from wanbed.ground.files.atomic_write import write_whole
from wanbed.ground.strict_model import InputError
from wanbed.results.records.run_store import read_json
from wanbed.runner.validation.comparison import VariantComparison

AGREEMENT_FILE = "agreement.json"
VIRTUAL_POINT_LIMIT = 0.05
VIRTUAL_MEDIAN_LIMIT = 0.02


@dataclass(frozen=True)
class Compared:
    """The iteration times of one experiment in virtual time and simulated. ``run`` is the name of its run."""

    experiment: str
    run: str
    comparisons: tuple[VariantComparison, ...]


@dataclass(frozen=True)
class Agreement:
    """The compared experiments, with at least one iteration time. Raise ValueError without any."""

    experiments: tuple[Compared, ...]

    def __post_init__(self) -> None:
        if not self.comparisons:
            raise ValueError("nothing was compared")

    @property
    def comparisons(self) -> tuple[VariantComparison, ...]:
        """The comparisons of all experiments."""
        return tuple(comparison for each in self.experiments for comparison in each.comparisons)

    @property
    def median_error(self) -> float:
        """The median of the absolute errors."""
        return float(np.median([abs(comparison.error) for comparison in self.comparisons]))

    @property
    def worst(self) -> VariantComparison:
        """The comparison with the largest absolute error."""
        return max(self.comparisons, key=lambda comparison: abs(comparison.error))

    @property
    def failures(self) -> tuple[str, ...]:
        """A sentence for each limit that is exceeded."""
        found = []
        beyond = [each for each in self.comparisons if abs(each.error) > VIRTUAL_POINT_LIMIT]
        if beyond:
            found.append(
                f"{len(beyond)} of {len(self.comparisons)} simulated iteration times are more than "
                f"{VIRTUAL_POINT_LIMIT:.0%} off those in virtual time."
            )
        if self.median_error > VIRTUAL_MEDIAN_LIMIT:
            found.append(
                f"The median error against virtual time is {self.median_error:.1%}, more than "
                f"{VIRTUAL_MEDIAN_LIMIT:.0%}."
            )
        return tuple(found)


def write_agreement(folder: Path, agreement: Agreement) -> Path:
    """Write the agreement into that folder, replacing an earlier one. Return the file."""
    path = folder / AGREEMENT_FILE
    write_whole(path, json.dumps(_document(agreement), indent=1, ensure_ascii=False) + "\n")
    return path


def read_agreement(folder: Path) -> Agreement:
    """Read the agreement that ``write_agreement`` wrote into that folder. Raise InputError, one line, on failure."""
    path = folder / AGREEMENT_FILE
    here = str(path)
    if not path.is_file():
        raise InputError(f"{here}: no such file: make paper writes it")
    document = read_json(path)
    try:
        return Agreement(tuple(_compared(each) for each in document["experiments"]))
    except (KeyError, TypeError, ValueError) as fault:
        raise InputError(f"{here}: is not what make paper writes ({fault!r}): write it anew") from None


def _document(agreement: Agreement) -> dict[str, Any]:
    return {
        "median_error": agreement.median_error,
        "worst_error": agreement.worst.error,
        "experiments": [
            {
                "experiment": compared.experiment,
                "run": compared.run,
                "comparisons": [
                    {
                        "sweep_point": each.point,
                        "values": dict(each.values),
                        "variant": each.variant,
                        "virtual_s": each.emulated_s,
                        "simulated_s": each.simulated_s,
                        "error": each.error,
                        "cautions": list(each.cautions),
                    }
                    for each in compared.comparisons
                ],
            }
            for compared in agreement.experiments
        ],
    }


def _compared(document: Mapping[str, Any]) -> Compared:
    return Compared(str(document["experiment"]), str(document["run"]), tuple(_comparisons(document["comparisons"])))


def _comparisons(documents: Sequence[Mapping[str, Any]]) -> list[VariantComparison]:
    return [
        VariantComparison(
            point=int(each["sweep_point"]),
            values={str(path): str(value) for path, value in each["values"].items()},
            variant=str(each["variant"]),
            repeats=1,
            emulated_s=float(each["virtual_s"]),
            fastest_s=float(each["virtual_s"]),
            slowest_s=float(each["virtual_s"]),
            simulated_s=float(each["simulated_s"]),
            cautions=tuple(map(str, each["cautions"])),
        )
        for each in documents
    ]

"""Measure how far simulations agree with virtual time, and store the result as a file.

The experiments are those of the paper (``Agreement``) or drawn at random (``RandomAgreement``). In virtual time the
machine disturbs nothing, so the limits are tighter than those for the real clock.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from wanbed.ground.errors import InputError
from wanbed.ground.files import write_whole
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
    return _write(folder, _document(agreement))


def read_agreement(folder: Path) -> Agreement:
    """Read the agreement that ``write_agreement`` wrote into that folder. Raise InputError, one line, on failure."""
    document = _read(folder, "make paper")
    with _written_by("make paper", folder):
        return Agreement(tuple(_compared(each) for each in document["experiments"]))


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


SHARE_WITHIN = 0.95
"""The fraction of the experiments that must be within ``VIRTUAL_POINT_LIMIT``."""

EXPLAINED_LIMIT = 0.10
"""An experiment with a larger error than this needs an explanation."""


@dataclass(frozen=True)
class DrawnResult:
    """The iteration times of one experiment, in virtual time and simulated.

    ``cautions`` lists what makes the time in virtual time unreliable.
    """

    number: int
    name: str
    traits: tuple[str, ...]
    virtual_s: float
    simulated_s: float
    cautions: tuple[str, ...] = ()

    @property
    def error(self) -> float:
        """``simulated_s / virtual_s - 1``. Above zero the simulated iteration is too slow."""
        return self.simulated_s / self.virtual_s - 1


@dataclass(frozen=True)
class RandomAgreement:
    """The outcome of ``asked`` experiments of one seed. ``failed`` has the reason of each failed one by its number.

    An experiment that has neither a result nor a failure was not run, because the run was interrupted.
    """

    seed: int
    asked: int
    results: tuple[DrawnResult, ...]
    failed: Mapping[int, str]

    @property
    def errors(self) -> tuple[float, ...]:
        """The absolute errors of all results."""
        return tuple(abs(result.error) for result in self.results)

    @property
    def median_error(self) -> float | None:
        """The median of the absolute errors, None without results."""
        return float(np.median(self.errors)) if self.results else None

    @property
    def share_within(self) -> float | None:
        """The fraction of the results within ``VIRTUAL_POINT_LIMIT``, None without results."""
        within = [error <= VIRTUAL_POINT_LIMIT for error in self.errors]
        return sum(within) / len(within) if within else None

    def beyond(self, limit: float) -> list[DrawnResult]:
        """Return the results with a larger absolute error than that, the largest first."""
        found = [result for result in self.results if abs(result.error) > limit]
        return sorted(found, key=lambda result: (-abs(result.error), result.number))

    @property
    def failures(self) -> tuple[str, ...]:
        """A sentence for each requirement that is not met."""
        found = []
        if self.median_error is not None and self.median_error > VIRTUAL_MEDIAN_LIMIT:
            found.append(
                f"The median error of random experiments is {self.median_error:.1%}, more than "
                f"{VIRTUAL_MEDIAN_LIMIT:.0%}."
            )
        if self.share_within is not None and self.share_within < SHARE_WITHIN:
            found.append(
                f"{self.share_within:.1%} of the random experiments are within {VIRTUAL_POINT_LIMIT:.0%}, fewer than "
                f"{SHARE_WITHIN:.0%}."
            )
        if self.failed:
            found.append(f"{len(self.failed)} of {self.asked} random experiments did not finish.")
        missing = self.asked - len(self.results) - len(self.failed)
        if missing:
            found.append(f"{missing} of {self.asked} random experiments were not run.")
        return tuple(found)

    def document(self) -> dict[str, Any]:
        """Return everything in plain JSON types."""
        return {
            "seed": self.seed,
            "asked": self.asked,
            "median_error": self.median_error,
            "share_within": self.share_within,
            "experiments": [
                {
                    "number": each.number,
                    "name": each.name,
                    "traits": list(each.traits),
                    "virtual_s": each.virtual_s,
                    "simulated_s": each.simulated_s,
                    "error": each.error,
                    "cautions": list(each.cautions),
                }
                for each in self.results
            ],
            "failed": {str(number): reason for number, reason in self.failed.items()},
        }


def write_random_agreement(folder: Path, agreement: RandomAgreement) -> Path:
    """Write the agreement into that folder, replacing an earlier one. Return the file."""
    return _write(folder, agreement.document())


def read_random_agreement(folder: Path) -> RandomAgreement:
    """Read the agreement that ``write_random_agreement`` wrote into that folder. Raise InputError, one line."""
    document = _read(folder, f"wanbed validate --random N --drawn {folder}")
    with _written_by("wanbed validate --random", folder):
        return RandomAgreement(
            seed=int(document["seed"]),
            asked=int(document["asked"]),
            results=tuple(_result(each) for each in document["experiments"]),
            failed={int(number): str(reason) for number, reason in document["failed"].items()},
        )


def _result(document: Mapping[str, Any]) -> DrawnResult:
    return DrawnResult(
        number=int(document["number"]),
        name=str(document["name"]),
        traits=tuple(map(str, document["traits"])),
        virtual_s=float(document["virtual_s"]),
        simulated_s=float(document["simulated_s"]),
        cautions=tuple(map(str, document["cautions"])),
    )


def _write(folder: Path, document: Mapping[str, Any]) -> Path:
    path = folder / AGREEMENT_FILE
    write_whole(path, json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    return path


def _read(folder: Path, command: str) -> Any:
    """Return the document in that folder. Raise InputError, which names the command that writes it, without a file."""
    path = folder / AGREEMENT_FILE
    if not path.is_file():
        raise InputError(f"{path}: no such file: {command} writes it")
    return read_json(path)


@contextmanager
def _written_by(command: str, folder: Path) -> Iterator[None]:
    """Raise InputError in one line for a document that ``command`` cannot have written."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as fault:
        path = folder / AGREEMENT_FILE
        raise InputError(f"{path}: is not what {command} writes ({fault!r}): write it anew") from None

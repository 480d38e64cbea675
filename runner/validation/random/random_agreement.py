"""Measure how far simulations of random experiments agree with virtual time, and store the result as a file."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from wanbed.ground.files.atomic_write import write_whole
from wanbed.ground.strict_model import InputError
from wanbed.results.records.run_store import read_json
from wanbed.runner.validation.agreement import AGREEMENT_FILE, VIRTUAL_MEDIAN_LIMIT, VIRTUAL_POINT_LIMIT

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
    path = folder / AGREEMENT_FILE
    write_whole(path, json.dumps(agreement.document(), indent=1, ensure_ascii=False) + "\n")
    return path


def read_random_agreement(folder: Path) -> RandomAgreement:
    """Read the agreement that ``write_random_agreement`` wrote into that folder. Raise InputError, one line."""
    path = folder / AGREEMENT_FILE
    here = str(path)
    if not path.is_file():
        raise InputError(f"{here}: no such file: wanbed validate --random N --drawn {folder} writes it")
    document = read_json(path)
    try:
        return RandomAgreement(
            seed=int(document["seed"]),
            asked=int(document["asked"]),
            results=tuple(_result(each) for each in document["experiments"]),
            failed={int(number): str(reason) for number, reason in document["failed"].items()},
        )
    except (AttributeError, KeyError, TypeError, ValueError) as fault:
        raise InputError(f"{here}: is not what wanbed validate --random writes ({fault!r}): write it anew") from None


def _result(document: Mapping[str, Any]) -> DrawnResult:
    return DrawnResult(
        number=int(document["number"]),
        name=str(document["name"]),
        traits=tuple(map(str, document["traits"])),
        virtual_s=float(document["virtual_s"]),
        simulated_s=float(document["simulated_s"]),
        cautions=tuple(map(str, document["cautions"])),
    )

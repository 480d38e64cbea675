"""Run all checks of the simulator, and decide whether it passes."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from wanbed.results.reading.run import Run
from wanbed.runner.simulator.simulation import Simulate
from wanbed.runner.validation.case import LawCheck
from wanbed.runner.validation.closed_forms import CLOSED_FORMS
from wanbed.runner.validation.comparison import VariantComparison, compare
from wanbed.runner.validation.golden import GOLDEN_VALUES, golden_check

POINT_LIMIT = 0.05
MEDIAN_LIMIT = 0.03


@dataclass(frozen=True)
class Validation:
    """The checks of the simulator.

    Golden values and closed forms must be exact. Emulated times must be within ``POINT_LIMIT``, and their median error
    within ``MEDIAN_LIMIT``. ``comparisons`` is empty without an emulated run.
    """

    golden: tuple[LawCheck, ...]
    closed_forms: tuple[LawCheck, ...]
    comparisons: tuple[VariantComparison, ...]

    @property
    def median_error(self) -> float:
        """The median of the absolute errors. Raise ValueError without comparisons."""
        if not self.comparisons:
            raise ValueError("no emulated run was given to compare with")
        return float(np.median([abs(comparison.error) for comparison in self.comparisons]))

    @property
    def worst(self) -> VariantComparison:
        """The comparison with the largest absolute error. Raise ValueError without comparisons."""
        return max(self.comparisons, key=lambda comparison: abs(comparison.error))

    @cached_property
    def failures(self) -> tuple[str, ...]:
        """A sentence for each check that fails; empty if the simulator passes."""
        found = []
        for name, checks in (("golden values", self.golden), ("closed forms", self.closed_forms)):
            inexact = sum(not check.exact for check in checks)
            if inexact:
                found.append(f"{inexact} of {len(checks)} {name} are not exact.")
        beyond = [each for each in self.comparisons if abs(each.error) > POINT_LIMIT]
        if beyond:
            found.append(
                f"{len(beyond)} of {len(self.comparisons)} simulated iteration times are more than {POINT_LIMIT:.0%} "
                "off the emulated ones."
            )
        if self.comparisons and self.median_error > MEDIAN_LIMIT:
            found.append(f"The median error is {self.median_error:.1%}, more than {MEDIAN_LIMIT:.0%}.")
        return tuple(found)


def validate_simulator(run: Run | None, simulate: Simulate) -> Validation:
    """Simulate all cases. Raise InputError for a run that cannot be compared, and SimulationError if one fails."""
    comparisons = () if run is None else compare(run, simulate)
    return Validation(
        tuple(golden_check(value, simulate) for value in GOLDEN_VALUES),
        tuple(closed_form(simulate) for closed_form in CLOSED_FORMS),
        comparisons,
    )

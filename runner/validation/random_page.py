"""Write the page's section on random experiments: a verdict, large errors with their causes, and errors by trait.

Causes are read from a file that is written by hand::

    causes:
      small windows: what the cause is, and why it is left
    experiments:
      random-1-017: small windows
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from wanbed.ground.strict_model import InputError, StrictModel, parse_model
from wanbed.ground.yaml_document import read_document
from wanbed.results.text import count_text, list_text
from wanbed.runner.validation.agreement import (
    EXPLAINED_LIMIT,
    SHARE_WITHIN,
    VIRTUAL_MEDIAN_LIMIT,
    VIRTUAL_POINT_LIMIT,
    DrawnResult,
    RandomAgreement,
)
from wanbed.runner.validation.page_text import error_text, paragraph, plain, seconds_text, table

EXPLANATIONS_FILE = "explanations.yaml"


class Explanations(StrictModel):
    """Causes by name, and the name of the cause for each explained experiment."""

    causes: dict[str, str] = Field(default_factory=dict)
    experiments: dict[str, str] = Field(default_factory=dict)


def read_explanations(folder: Path) -> Explanations:
    """Return the explanations in that folder, empty if it has no file for them.

    Raise InputError, one line with file, field and remedy, for an invalid file.
    """
    path = folder / EXPLANATIONS_FILE
    if not path.is_file():
        return Explanations()
    here = str(path)
    explanations = parse_model(Explanations, read_document(path), here)
    for experiment, cause in explanations.experiments.items():
        if cause not in explanations.causes:
            known = ", ".join(explanations.causes) or "none"
            raise InputError(f"{here}: experiments.{experiment}: {cause!r} is not among the causes ({known}): add it")
    return explanations


UNEXPLAINED = "not explained"


@dataclass(frozen=True)
class RandomSection:
    """The section of the page, made from an agreement and the explanations of its errors."""

    agreement: RandomAgreement
    explanations: Explanations

    @property
    def unexplained(self) -> list[DrawnResult]:
        """The results that need an explanation and have none, the largest error first."""
        return [
            result
            for result in self.agreement.beyond(EXPLAINED_LIMIT)
            if result.name not in self.explanations.experiments
        ]

    @property
    def failures(self) -> tuple[str, ...]:
        """A sentence for each requirement that is not met."""
        found = self.agreement.failures
        if self.unexplained:
            names = list_text([result.name for result in self.unexplained])
            found += (f"More than {EXPLAINED_LIMIT:.0%} off and not explained: {names}.",)
        return found

    def verdict(self) -> str:
        """Return the summary for the head of the page."""
        agreement = self.agreement
        if agreement.median_error is None or agreement.share_within is None:
            return paragraph(" ".join(f"**{failure}**" for failure in self.failures))
        (worst, *_) = agreement.beyond(-1)
        summary = (
            f"Over {count_text(len(agreement.results), 'experiment')} drawn at random the median error is "
            f"{agreement.median_error:.1%}, {agreement.share_within:.1%} of them are within {VIRTUAL_POINT_LIMIT:.0%}, "
            f"and the worst is {error_text(worst.error)} off ({plain(worst.name)})."
        )
        return paragraph(" ".join([*(f"**{failure}**" for failure in self.failures), summary]))

    def markdown(self) -> list[str]:
        """Return the whole section."""
        agreement = self.agreement
        command = f"wanbed validate --random {agreement.asked} --seed {agreement.seed}"
        parts = [
            "## Random experiments\n",
            paragraph(
                f"`{command}` draws {count_text(agreement.asked, 'experiment')} over all that a file may combine "
                "(datacenters of any size, GPUs that share hosts, placements with rings over the WAN, transfers of "
                "4 KiB to 256 MiB, windows, trunks full and not, every schedule), runs each in virtual time and "
                "simulates it. What is compared is the period. The same seed gives the same experiments on every "
                "machine; their files are written to `runs/random`. Allowed is a median error of "
                f"{VIRTUAL_MEDIAN_LIMIT:.0%}, and {SHARE_WITHIN:.0%} of the experiments have to be within "
                f"{VIRTUAL_POINT_LIMIT:.0%}; above zero, the simulator is too slow."
            ),
            self._beyond(),
            self._by_trait(),
        ]
        if agreement.failed:
            rows = [(str(number), plain(reason)) for number, reason in sorted(agreement.failed.items())]
            parts += [paragraph("These did not finish:"), table(("number", "reason"), rows, right=(0,))]
        return parts

    def _beyond(self) -> str:
        beyond = self.agreement.beyond(VIRTUAL_POINT_LIMIT)
        if not beyond:
            return paragraph(f"None is farther off than {VIRTUAL_POINT_LIMIT:.0%}.")
        causes = [self.explanations.experiments.get(each.name) for each in beyond]
        rows = [
            (
                plain(each.name),
                seconds_text(each.virtual_s),
                seconds_text(each.simulated_s),
                error_text(each.error),
                plain(cause) if cause is not None else UNEXPLAINED if abs(each.error) > EXPLAINED_LIMIT else "",
                "; ".join(map(plain, (*each.cautions, *each.traits))),
            )
            for each, cause in zip(beyond, causes, strict=True)
        ]
        headings = ("experiment", "virtual time", "simulated", "error", "cause", "what it is like")
        named = [name for name in dict.fromkeys(causes) if name is not None]
        text = "".join(f"- **{plain(name)}**: {self.explanations.causes[name]}\n" for name in named)
        intro = paragraph(f"All that are farther off than {VIRTUAL_POINT_LIMIT:.0%}, the farthest first:")
        return "\n".join([intro, table(headings, rows, right=(1, 2, 3)), *([text] if text else [])])

    def _by_trait(self) -> str:
        rows = [
            (
                plain(name),
                str(each["experiments"]),
                f"{each['median_error']:.1%}",
                f"{each['share_within']:.0%}",
                f"{each['worst_error']:.1%}",
            )
            for name, each in by_trait(self.agreement.results).items()
        ]
        if not rows:
            return ""
        within = f"within {VIRTUAL_POINT_LIMIT:.0%}"
        return "\n".join(
            [
                paragraph("What the experiments were like, those traits first whose median error is the largest:"),
                table(("trait", "experiments", "median error", within, "worst"), rows, right=(1, 2, 3, 4)),
            ]
        )

    def document(self) -> Mapping[str, Any]:
        """Return everything in plain JSON types."""
        return {
            **self.agreement.document(),
            "failures": list(self.failures),
            "explained": {
                each.name: self.explanations.experiments[each.name]
                for each in self.agreement.results
                if each.name in self.explanations.experiments
            },
            "by_trait": by_trait(self.agreement.results),
        }


def by_trait(results: Sequence[DrawnResult]) -> dict[str, dict[str, Any]]:
    """Return the errors of the experiments with each trait, the trait with the largest median error first."""
    found = {}
    for trait in dict.fromkeys(trait for result in results for trait in result.traits):
        errors = [abs(result.error) for result in results if trait in result.traits]
        found[trait] = {
            "experiments": len(errors),
            "median_error": float(np.median(errors)),
            "share_within": sum(error <= VIRTUAL_POINT_LIMIT for error in errors) / len(errors),
            "worst_error": max(errors),
        }
    return dict(sorted(found.items(), key=lambda entry: (-entry[1]["median_error"], entry[0])))

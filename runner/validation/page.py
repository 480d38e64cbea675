"""Write the Markdown page of a validation, which is also readable as plain text.

Its section on random experiments has the cause of each large error, read from a file that is written by hand::

    causes:
      small windows: what the cause is, and why it is left
    experiments:
      random-1-017: small windows
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from wanbed.ground.errors import InputError
from wanbed.ground.strict_model import StrictModel, parse_model
from wanbed.ground.units import format_duration
from wanbed.ground.yaml_document import read_document
from wanbed.results.comparison.run_description import warnings
from wanbed.results.reading.run import Run
from wanbed.results.reading.stored_trial import point_text
from wanbed.results.text import count_text, list_text
from wanbed.runner.validation.agreement import (
    EXPLAINED_LIMIT,
    SHARE_WITHIN,
    VIRTUAL_MEDIAN_LIMIT,
    VIRTUAL_POINT_LIMIT,
    Agreement,
    DrawnResult,
    RandomAgreement,
)
from wanbed.runner.validation.case import LawCheck
from wanbed.runner.validation.comparison import VariantComparison
from wanbed.runner.validation.validation import MEDIAN_LIMIT, POINT_LIMIT, Validation


def _paragraph(text: str) -> str:
    """Return a paragraph, ended by a line break."""
    return f"{text}\n"


def _plain(text: str) -> str:
    """Return text of a user with Markdown's special characters escaped."""
    return re.sub(r"([\\`*_\[\]<>|])", r"\\\1", text)


def _seconds_text(value_s: float) -> str:
    """Return an iteration time as text."""
    return f"{value_s:.3f} s"


def _error_text(error: float) -> str:
    """Return an error as text, with its sign."""
    return f"{error:+.1%}"


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Return a table whose columns are padded to equal width. The columns in ``right`` are aligned to the right."""
    widths = [max(3, *(len(row[column]) for row in [headings, *rows])) for column in range(len(headings))]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return f"| {' | '.join(padded)} |\n"

    rule = [f"{'-' * (width - 1)}:" if column in right else "-" * width for column, width in enumerate(widths)]
    return "".join([line(headings), line(rule), *(line(row) for row in rows)])


_EXPLANATIONS_FILE = "explanations.yaml"


class Explanations(StrictModel):
    """Causes by name, and the name of the cause for each explained experiment."""

    causes: dict[str, str] = Field(default_factory=dict)
    experiments: dict[str, str] = Field(default_factory=dict)


def read_explanations(folder: Path) -> Explanations:
    """Return the explanations in that folder, empty if it has no file for them.

    Raise InputError, one line with file, field and remedy, for an invalid file.
    """
    path = folder / _EXPLANATIONS_FILE
    if not path.is_file():
        return Explanations()
    here = str(path)
    explanations = parse_model(Explanations, read_document(path), here)
    for experiment, cause in explanations.experiments.items():
        if cause not in explanations.causes:
            known = ", ".join(explanations.causes) or "none"
            raise InputError(f"{here}: experiments.{experiment}: {cause!r} is not among the causes ({known}): add it")
    return explanations


_UNEXPLAINED = "not explained"


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
            return _paragraph(" ".join(f"**{failure}**" for failure in self.failures))
        (worst, *_) = agreement.beyond(-1)
        summary = (
            f"Over {count_text(len(agreement.results), 'experiment')} drawn at random the median error is "
            f"{agreement.median_error:.1%}, {agreement.share_within:.1%} of them are within {VIRTUAL_POINT_LIMIT:.0%}, "
            f"and the worst is {_error_text(worst.error)} off ({_plain(worst.name)})."
        )
        return _paragraph(" ".join([*(f"**{failure}**" for failure in self.failures), summary]))

    def markdown(self) -> list[str]:
        """Return the whole section."""
        agreement = self.agreement
        command = f"wanbed validate --random {agreement.asked} --seed {agreement.seed}"
        parts = [
            "## Random experiments\n",
            _paragraph(
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
            rows = [(str(number), _plain(reason)) for number, reason in sorted(agreement.failed.items())]
            parts += [_paragraph("These did not finish:"), table(("number", "reason"), rows, right=(0,))]
        return parts

    def _beyond(self) -> str:
        beyond = self.agreement.beyond(VIRTUAL_POINT_LIMIT)
        if not beyond:
            return _paragraph(f"None is farther off than {VIRTUAL_POINT_LIMIT:.0%}.")
        causes = [self.explanations.experiments.get(each.name) for each in beyond]
        rows = [
            (
                _plain(each.name),
                _seconds_text(each.virtual_s),
                _seconds_text(each.simulated_s),
                _error_text(each.error),
                _plain(cause) if cause is not None else _UNEXPLAINED if abs(each.error) > EXPLAINED_LIMIT else "",
                "; ".join(map(_plain, (*each.cautions, *each.traits))),
            )
            for each, cause in zip(beyond, causes, strict=True)
        ]
        headings = ("experiment", "virtual time", "simulated", "error", "cause", "what it is like")
        named = [name for name in dict.fromkeys(causes) if name is not None]
        text = "".join(f"- **{_plain(name)}**: {self.explanations.causes[name]}\n" for name in named)
        intro = _paragraph(f"All that are farther off than {VIRTUAL_POINT_LIMIT:.0%}, the farthest first:")
        return "\n".join([intro, table(headings, rows, right=(1, 2, 3)), *([text] if text else [])])

    def _by_trait(self) -> str:
        rows = [
            (
                _plain(name),
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
                _paragraph("What the experiments were like, those traits first whose median error is the largest:"),
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


def page(
    validation: Validation,
    run: Run | None,
    picture: str | None,
    agreement: Agreement | None = None,
    drawn: RandomSection | None = None,
) -> str:
    """Return the whole page: verdict, golden values, closed forms, and comparisons with emulated runs.

    ``run`` is the emulated run, ``agreement`` the comparison with virtual time, ``drawn`` the random experiments.
    ``picture`` is the picture's path relative to the page. The same arguments give the same text.
    """
    sections = [
        "# Does the simulator agree?\n",
        _paragraph(
            f"Written by `wanbed validate{'' if run is None else ' RUN'}`, not by hand. The simulator is held against "
            "what arithmetic gives, to the nanosecond, and against what emulated trials measured: the same experiment, "
            "schedules and topology, with real bytes over real TCP. Which kinds of trials are known to be off, and by "
            "how much, is on [a page of its own](known-misses.md); each simulation says of itself if it is of such a "
            "kind."
        ),
        _verdict(validation),
        *([] if agreement is None else [_agreement_verdict(agreement)]),
        *([] if drawn is None else [drawn.verdict()]),
        "## Golden values\n",
        _paragraph(
            "Iteration times under latency alone: S stages, M microbatches, a forward of 50 ms, a backward of 100 ms, "
            "one-way latency c, no limit on rates. Three independent public schedulers agree on 1F1B, a closed form "
            "gives GPipe."
        ),
        _checks(validation.golden),
        "## Closed forms\n",
        _paragraph(
            "Cases small enough for paper; each is derived where it is computed, in "
            "`runner/validation/closed_forms.py`. Forward f, recompute r, backward b, a transfer of A or B bytes, "
            "node-pair rate W, rate R, one-way latency c; arrivals count from the end of the forward that made the "
            "first activation."
        ),
        _checks(validation.closed_forms),
        "## Emulated against simulated\n",
        _paragraph("Not compared here: no emulated run was given.")
        if run is None
        else _comparisons(validation, run, picture),
        *([] if agreement is None else ["## Virtual time against simulated\n", *_virtual_time(agreement)]),
        *([] if drawn is None else drawn.markdown()),
    ]
    return "\n".join(sections)


def _verdict(validation: Validation) -> str:
    exact = [check.exact for check in (*validation.golden, *validation.closed_forms)]
    lines = [f"{sum(exact)} of {len(exact)} golden values and closed forms are exact."]
    if validation.comparisons:
        worst = validation.worst
        lines.append(
            f"Over {count_text(len(validation.comparisons), 'emulated iteration time')} the simulator's median error "
            f"is {validation.median_error:.1%} and its worst {_error_text(worst.error)} ({_which(worst)})."
        )
    if validation.failures:
        lines.insert(0, "**It does not agree.** " + " ".join(validation.failures))
    else:
        lines.insert(0, "**It agrees.**")
    return _paragraph(" ".join(lines))


def _checks(checks: Sequence[LawCheck]) -> str:
    rows = [
        (
            check.case,
            check.law,
            _durations(check.expected_ns),
            "exact" if check.exact else f"**{_durations(check.simulated_ns)}**",
        )
        for check in checks
    ]
    return table(("case", "formula", "expected", "simulated"), rows, right=(2,))


def _comparisons(validation: Validation, run: Run, picture: str | None) -> str:
    parts = [
        _paragraph(
            "The simulator knows what the experiment's file says and no more. Allowed is an error of "
            f"{POINT_LIMIT:.0%} in each iteration time and of {MEDIAN_LIMIT:.0%} in their median; above zero, the "
            "simulator is too slow."
        ),
        _paragraph(_provenance(run)),
    ]
    cautions = warnings(run)
    if cautions:
        parts += [_paragraph("Read with care:"), "".join(f"- {_plain(caution)}\n" for caution in cautions)]
    parts.append(table(*_comparison_rows(validation.comparisons)))
    if picture is not None:
        parts.append(f"![Simulated against emulated iteration time, and the error of each]({picture})\n")
    return "\n".join(parts)


def _agreement_verdict(agreement: Agreement) -> str:
    worst = agreement.worst
    summary = (
        f"Over {count_text(len(agreement.comparisons), 'iteration time')} in virtual time the median error is "
        f"{agreement.median_error:.1%} and the worst {_error_text(worst.error)} ({_which(worst)})."
    )
    return _paragraph(" ".join([*(f"**{failure}**" for failure in agreement.failures), summary]))


def _virtual_time(agreement: Agreement) -> list[str]:
    rows = [
        (
            _plain(compared.experiment),
            _plain(point_text(each.values)),
            _plain(each.variant),
            _seconds_text(each.emulated_s),
            _seconds_text(each.simulated_s),
            f"**{_error_text(each.error)}**" if abs(each.error) > VIRTUAL_POINT_LIMIT else _error_text(each.error),
            ", ".join(map(_plain, each.cautions)),
        )
        for compared in agreement.experiments
        for each in compared.comparisons
    ]
    return [
        _paragraph(
            "Every sweep point of the paper's reproduction, at real rates and sizes, with real TCP in a kernel whose "
            "clock jumps over idle time: nothing disturbs it. Allowed is an error of "
            f"{VIRTUAL_POINT_LIMIT:.0%} in each iteration time and of {VIRTUAL_MEDIAN_LIMIT:.0%} in their median."
        ),
        table(
            ("experiment", "sweep point", "variant", "virtual time", "simulated", "error", "but"), rows, right=(3, 4, 5)
        ),
    ]


def _comparison_rows(
    comparisons: Sequence[VariantComparison],
) -> tuple[tuple[str, ...], list[tuple[str, ...]], tuple[int, ...]]:
    """Return the headings, the rows and the indices of number columns. Empty columns are left out."""
    swept, careful = any(each.values for each in comparisons), any(each.cautions for each in comparisons)
    headings = (
        *(("sweep point",) if swept else ()),
        *("variant", "emulated", "range of repeats", "simulated", "error"),
        *(("but",) if careful else ()),
    )
    rows = [
        (
            *((_plain(point_text(each.values)),) if swept else ()),
            _plain(each.variant),
            _seconds_text(each.emulated_s),
            f"{_seconds_text(each.fastest_s)} to {_seconds_text(each.slowest_s)}" if each.repeats > 1 else "1 repeat",
            _seconds_text(each.simulated_s),
            _judged(each.error),
            *((", ".join(each.cautions),) if careful else ()),
        )
        for each in comparisons
    ]
    numbers = tuple(range(swept + 1, swept + 5))
    return headings, rows, numbers


def _provenance(run: Run) -> str:
    manifest = run.manifest
    host, substrate = manifest.get("host") or {}, manifest.get("substrate") or {}
    versions, git = manifest.get("versions") or {}, manifest.get("git") or {}
    words = [
        f"The emulated run is `{run.path.resolve().name}`",
        _fact(manifest.get("created"), "begun {}"),
        _fact(versions.get("wanbed"), "wanbed {}") + _revision(git),
        _fact(versions.get("python"), "Python {}"),
        _fact(host.get("cpu"), "{}") + _fact(host.get("cores"), " with {} cores"),
        _fact(host.get("kernel"), "hosts on Linux {}"),
        _fact(substrate.get("name"), "network in the {} substrate") + _fact(substrate.get("kernel"), " on Linux {}"),
        _fact(manifest.get("dilation"), "dilation {}"),
        count_text(len(run.trials), "trial"),
    ]
    return ", ".join(filter(None, words)) + "."


def _revision(git: Mapping[str, Any]) -> str:
    changed = " with uncommitted changes" if git.get("dirty") else ""
    return _fact(git.get("revision"), " at revision {}") + changed


def _fact(value: Any, template: str) -> str:
    return template.format(_plain(str(value))) if value not in {None, ""} else ""


def _durations(durations_ns: Sequence[int]) -> str:
    texts = [format_duration(duration_ns) for duration_ns in durations_ns]
    return f"{texts[0]} each" if len(texts) > 1 and len(set(texts)) == 1 else ", ".join(texts)


def _judged(error: float) -> str:
    return f"**{_error_text(error)}**" if abs(error) > POINT_LIMIT else _error_text(error)


def _which(comparison: VariantComparison) -> str:
    at = _plain(point_text(comparison.values))
    return _plain(comparison.variant) + (f" at {at}" if at else "")


def document(
    validation: Validation, agreement: Agreement | None = None, drawn: RandomSection | None = None
) -> Mapping[str, Any]:
    """Return the validation in plain JSON types. Virtual time is summarized by its errors."""

    def checks(found: Sequence[LawCheck]) -> list[dict[str, Any]]:
        return [
            {
                "case": check.case,
                "law": check.law,
                "expected_ns": list(check.expected_ns),
                "simulated_ns": list(check.simulated_ns),
                "exact": check.exact,
            }
            for check in found
        ]

    compared = bool(validation.comparisons)
    return {
        "agrees": not validation.failures,
        "failures": list(validation.failures),
        "golden": checks(validation.golden),
        "closed_forms": checks(validation.closed_forms),
        "comparisons": [
            {
                "swept": dict(each.values),
                "variant": each.variant,
                "repeats": each.repeats,
                "emulated_s": each.emulated_s,
                "fastest_s": each.fastest_s,
                "slowest_s": each.slowest_s,
                "simulated_s": each.simulated_s,
                "error": each.error,
                "cautions": list(each.cautions),
            }
            for each in validation.comparisons
        ],
        "median_error": validation.median_error if compared else None,
        "worst_error": validation.worst.error if compared else None,
        "virtual_time": None
        if agreement is None
        else {
            "compared": len(agreement.comparisons),
            "median_error": agreement.median_error,
            "worst_error": agreement.worst.error,
            "failures": list(agreement.failures),
        },
        "random": None if drawn is None else drawn.document(),
    }

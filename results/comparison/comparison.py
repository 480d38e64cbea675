"""Compare run B with run A, the reference: first check that they are comparable, then judge every pair.

``check`` pairs them and finds the differences that forbid a comparison. ``compare`` judges every pair if there are
none. ``load_both``, ``load_clocks`` and ``parse_margin`` read what a user names for a comparison.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from wanbed.ground.errors import InputError, did_you_mean
from wanbed.ground.units import parse_fraction
from wanbed.results.comparison.caveats import caveats
from wanbed.results.comparison.differences import (
    CALIBRATION,
    COMPLETE,
    Difference,
    differences,
    is_below,
    pair_fields,
    point_fields,
    run_fields,
    under_test,
)
from wanbed.results.comparison.judgement import ITERATION_TIME, Judgement, Metric, judge, judge_loss, loss_pairs
from wanbed.results.comparison.pairing import Pair, Pairing, Side, pair_runs
from wanbed.results.reading.headline import encoded_text, worth_text
from wanbed.results.reading.run import Run, load_run

MARGIN = 0.02

Verdict = Literal["same", "regressed", "improved", "not_comparable", "no_data"]

PairKey = tuple[int, str]
"""The sweep point and variant in A."""


class UnknownFieldError(InputError):
    """A field of ``allow`` does not exist. The message is one line with the most similar known field."""


@dataclass(frozen=True)
class Check:
    """Two paired runs and their differences.

    ``refused`` differences forbid a comparison, ``allowed`` ones were accepted by the user. ``under_test`` are
    differences between paired variants, which the comparison is about.
    """

    a: Run
    b: Run
    pairing: Pairing
    refused: tuple[Difference, ...]
    allowed: tuple[Difference, ...]
    under_test: tuple[Difference, ...]
    caveats: tuple[str, ...]

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The pairs that are compared."""
        return self.pairing.pairs


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison. ``judgements`` is empty if a difference forbids the comparison.

    ``verdict`` is the first that applies of

    - not_comparable: a difference forbids the comparison;
    - regressed: any pair is;
    - no_data: there is no pair, or a pair could not be judged; a gate that measured nothing must not pass;
    - improved: any pair is;
    - same: otherwise. Unclear pairs count as same here; ``unclear`` is their number.

    ``metric`` is what was judged. ``notes`` say what losses and clocks are of; where iteration times were judged, that
    tokens are not worth the same, if so.
    """

    check: Check
    judgements: tuple[Judgement, ...]
    margin: float
    seed: int
    metric: Metric = ITERATION_TIME
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The verdict of all pairs together."""
        if self.check.refused:
            return "not_comparable"
        verdicts = {judgement.verdict for judgement in self.judgements}
        if "regressed" in verdicts:
            return "regressed"
        if not verdicts or "no_data" in verdicts:
            return "no_data"
        return "improved" if "improved" in verdicts else "same"

    @property
    def unclear(self) -> int:
        """The number of pairs left undecided by noise, or by an effect about as large as the margin."""
        return sum(judgement.verdict == "unclear" for judgement in self.judgements)

    def document(self) -> dict[str, Any]:
        """Return the document of ``wanbed compare --json``."""
        floors = [each.noise_floor for each in self.judgements if each.noise_floor is not None]
        return {
            "verdict": self.verdict,
            "metric": self.metric.name,
            "notes": list(self.notes),
            "a": str(self.check.a.path),
            "b": str(self.check.b.path),
            "margin": self.margin,
            "noise_floor": max(floors) if floors else None,
            "unclear": self.unclear,
            "seed": self.seed,
            "sweep_points": [_pair_document(judgement, self.metric) for judgement in self.judgements],
            "differences": [
                {**_difference_document(each), "allowed": allowed}
                for allowed, found in ((False, self.check.refused), (True, self.check.allowed))
                for each in found
            ],
            "under_test": [_difference_document(each) for each in self.check.under_test],
            "unpaired": [
                {"field": each.field, "only_in": each.run, "name": each.name} for each in self.check.pairing.unpaired
            ],
            "warnings": list(self.check.caveats),
        }


def _pair_document(judgement: Judgement, metric: Metric) -> dict[str, Any]:
    pair = judgement.pair
    return {
        "swept": dict(pair.point),
        "variant": pair.a.variant,
        "variant_b": pair.b.variant,
        "ratio": judgement.ratio,
        "interval": None if judgement.interval is None else list(judgement.interval),
        "verdict": judgement.verdict,
        f"a_{metric.field}": pair.a.median_s,
        f"b_{metric.field}": pair.b.median_s,
        "bound": {"a": _bound_document(pair.a), "b": _bound_document(pair.b)},
        **(
            {"usd_per_million_tokens": {"a": pair.a.usd_per_million_tokens, "b": pair.b.usd_per_million_tokens}}
            if pair.priced
            else {}
        ),
        f"{metric.draw}s": {"a": pair.a.repeats, "b": pair.b.repeats},
        ("trials" if metric.of_losses else "iterations"): {"a": pair.a.iterations, "b": pair.b.iterations},
        "exact": pair.a.exact and pair.b.exact,
        "saturated": {"a": pair.a.saturated, "b": pair.b.saturated},
        "margin": judgement.margin,
        "noise_floor": judgement.noise_floor,
        "reading": judgement.reading,
    }


def _bound_document(side: Side) -> dict[str, Any] | None:
    if side.bound is None:
        return None
    time_s, part = side.bound
    return {"time_s": time_s, "part": part, "over": side.over_bound}


def _difference_document(difference: Difference) -> dict[str, str]:
    return {"field": difference.field, "a": difference.a, "b": difference.b, "where": difference.where}


def check(a: Run, b: Run, *, names: Sequence[tuple[str, str]] = (), allow: Sequence[str] = ()) -> Check:
    """Pair two runs and find the differences that forbid comparing them.

    ``names`` as for ``pair_runs``; ``allow`` are fields, or prefixes of fields, in which the runs may differ. Raise
    PairingError as ``pair_runs`` does, and UnknownFieldError if a field of ``allow`` does not exist.
    """
    pairing = pair_runs(a, b, names)
    found = [
        Difference(each.field, *((each.name, "absent") if each.run == "A" else ("absent", each.name)))
        for each in pairing.unpaired
    ]
    found += differences(a, b, pairing.pairs)
    _check_known(a, b, allow, found, pairing)
    allowed = [each for each in found if any(is_below(each.field, field) for field in allow)]
    return Check(
        a,
        b,
        pairing,
        tuple(each for each in found if each not in allowed),
        tuple(allowed),
        tuple(under_test(a, b, pairing.pairs)),
        tuple(caveats(a, b, pairing.pairs)),
    )


def _check_known(a: Run, b: Run, allow: Sequence[str], found: Sequence[Difference], pairing: Pairing) -> None:
    known = {
        "sweep_points",
        "variants",
        CALIBRATION,
        COMPLETE,
        *run_fields(a),
        *run_fields(b),
        *(each.field for each in found),
    }
    for pair in pairing.pairs:
        for run, side in ((a, pair.a), (b, pair.b)):
            known |= {".".join(field.split(".")[:3]) for field in point_fields(run, side.point)}
            known |= pair_fields(run, side.point, side.variant).keys()
    prefixes = {".".join(steps[:end]) for steps in map(_steps, known) for end in range(1, len(steps) + 1)}
    for field in allow:
        if field not in prefixes:
            listed = f"known are {', '.join(sorted({_steps(each)[0] for each in known}))}"
            remedy = did_you_mean(field, sorted(prefixes), listed)
            raise UnknownFieldError(f"--allow: no field {field!r}, {remedy}")


def _steps(field: str) -> list[str]:
    return field.split(".")


def compare(
    checked: Check,
    *,
    margin: float = MARGIN,
    floors: Mapping[PairKey, float] | None = None,
    seed: int = 0,
    metric: Metric = ITERATION_TIME,
    clocks: tuple[Run | None, Run | None] = (None, None),
) -> Comparison:
    """Judge every pair against the larger of ``margin`` and its noise floor; judge none if the check refused any.

    ``metric`` is what is judged. For one of losses, ``clocks`` are the runs whose clocks time the losses of A and of B,
    None for their own, and no noise floor counts. Raise as ``loss_pairs`` does.
    """
    if checked.refused:
        return Comparison(checked, (), margin, seed, metric)
    if metric.of_losses:
        found = loss_pairs(checked.a, checked.b, checked.pairs, metric, clocks)
        judged = tuple(judge_loss(pair, metric, margin, seed) for pair in found.pairs)
        return Comparison(checked, judged, margin, seed, metric, found.notes)
    floors = floors or {}
    judgements = [judge(pair, margin, floors.get((pair.a.point, pair.a.variant)), seed) for pair in checked.pairs]
    return Comparison(checked, tuple(judgements), margin, seed, notes=_worth_notes(checked.pairs))


def _worth_notes(pairs: Sequence[Pair]) -> tuple[str, ...]:
    """Return the sentences about pairs of which one side learns otherwise than the other; () if none does.

    One does that synchronises seldom, or whose activations cross the WAN in another format.
    """
    sides = [(one, other) for pair in pairs for one, other in ((pair.a, pair.b), (pair.b, pair.a))]
    seldom = [one.variant for one, other in sides if one.synchronizes_seldom and not other.synchronizes_seldom]
    encoded = [
        one.variant
        for one, other in sides
        if one.activation_wire is not None and one.activation_wire != other.activation_wire
    ]
    return (*((worth_text(seldom),) if seldom else ()), *((encoded_text(encoded),) if encoded else ()))


def load_both(a: Run | Path, b: Run | Path) -> tuple[Run, Run]:
    """Return two runs, of which those given as folders are read, and a folder that is given twice only once."""
    first = a if isinstance(a, Run) else load_run(a, coded=True)
    if isinstance(b, Run):
        return first, b
    return first, first if b.resolve() == first.path.resolve() else load_run(b, coded=True)


def load_clocks(clocks: Sequence[Run | Path], count: int) -> list[Run | None]:
    """Return a clock for each of ``count`` runs: one that is given once is for all, none leaves them their own.

    Raise InputError if there are neither 0 nor 1 nor ``count``.
    """
    if not clocks:
        return [None] * count
    loaded = [clock if isinstance(clock, Run) else load_run(clock, coded=True) for clock in clocks]
    if len(loaded) not in {1, count}:
        raise InputError(
            f"--clock: {len(loaded)} are given, and {count} runs to time: give one for all, or one for each"
        )
    return [loaded[0]] * count if len(loaded) == 1 else [*loaded]


def parse_margin(text: str) -> float:
    """Return the fraction that a margin like ``2%`` stands for. Raise InputError for any other text."""
    number = text.strip()
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", number):
        raise InputError(f"--margin {number}: a percentage has its sign, write {number}%")
    if "e" in number.lower() and number.endswith("%"):
        raise InputError(f"--margin {number}: an exponent is not read, write a plain percentage like 0.5%")
    try:
        return parse_fraction(text)
    except ValueError as refusal:
        raise InputError(f"--margin: {refusal}") from None

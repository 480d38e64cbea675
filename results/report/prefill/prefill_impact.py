"""Test whether prefill in its bubbles slows training down: variants with it against those without, otherwise equal."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from results.comparison.repeatability import repeatable_within
from results.metrics.bootstrap import CONFIDENCE, median_of_medians, ratio_interval
from results.reading.headline import point_text
from results.reading.run import Run
from results.reading.stored_trial import swept_values
from results.report.prefill.prefill_service import serves

MARGIN = 0.005
"""How far from 1 the ratio may be for it to count as no impact: 0.5 %."""

FEWEST_PAIRS = 5
"""Fewer repeats of both say too little about the noise from run to run."""

WITHIN, BEYOND, UNDECIDED = "within", "beyond", "undecided"

_PREFILL_ALONE = ("name", "prefill", "pool")
"""What may differ between two variants of which the one only serves beside what the other does."""


@dataclass(frozen=True)
class Impact:
    """One variant that serves against the first one that does not and is equal otherwise, at one sweep point.

    ``ratio`` is its iteration time over the other's, each the median over repeats of their medians, from the repeats
    that both have. ``interval`` is that ratio's with 95 % confidence (``results.metrics.bootstrap``), None where
    too few repeats were measured. ``repeatable_within`` is how far the ratio may be off where that needs no repeats, 0
    for a simulation, which is the same each time.
    """

    run: str
    point: int
    values: Mapping[str, str]
    without: str
    variant: str
    pairs: int
    ratio: float
    interval: tuple[float, float] | None
    repeatable_within: float | None
    simulated: bool

    @property
    def where(self) -> str:
        """The sweep point's swept values as a reader calls them."""
        return point_text(self.values)

    @property
    def verdict(self) -> str:
        """The verdict: the interval, or what is known of the ratio without one, lies within the margin or outside."""
        ends = self.interval
        if ends is None and self.repeatable_within is not None:
            ends = self.ratio / (1 + self.repeatable_within), self.ratio * (1 + self.repeatable_within)
        if ends is None:
            return UNDECIDED
        if all(1 - MARGIN <= end <= 1 + MARGIN for end in ends):
            return WITHIN
        return BEYOND if ends[0] > 1 + MARGIN or ends[1] < 1 - MARGIN else UNDECIDED

    @property
    def words(self) -> str:
        """The verdict as a table shows it."""
        few = self.repeatable_within is None and self.pairs < FEWEST_PAIRS
        lines = {WITHIN: "no impact", BEYOND: "slower" if self.ratio > 1 else "faster", UNDECIDED: "cannot tell"}
        none = ", no interval" if few and self.interval is None else ""
        return lines[self.verdict] + (f", of {self.pairs} of at least {FEWEST_PAIRS} pairs{none}" if few else "")


def impacts(run: Run, label: str = "") -> list[Impact]:
    """Return one for each sweep point and serving variant with a counterpart, in the order of the run's trials."""
    times_s: dict[tuple[int, str], dict[int, list[float]]] = {}
    serving: dict[tuple[int, str], bool] = {}
    for trial, own in zip(run.trials, run.summary["iteration_times_s"], strict=True):
        key = (trial.point, trial.variant)
        serving[key] = serving.get(key, False) or serves(trial)
        if own:
            times_s.setdefault(key, {})[trial.repeat] = list(own)
    settings = {variant: _settings(run.manifest, variant) for variant in run.variants}
    found = []
    for (point, variant), own in times_s.items():
        if not serving[point, variant]:
            continue
        others = (
            other
            for (at, other) in times_s
            if at == point and not serving[at, other] and settings[other] == settings[variant]
        )
        without = next(others, None)
        shared = sorted(own.keys() & times_s[point, without].keys()) if without is not None else []
        if without is None or not shared:
            continue
        alone, both = ([times_s[point, name][repeat] for repeat in shared] for name in (without, variant))
        alone_s, both_s = median_of_medians(alone), median_of_medians(both)
        if not alone_s or both_s is None:
            continue
        interval = None if run.simulated else ratio_interval(alone, both, CONFIDENCE)
        each_within = repeatable_within(run, point)
        found.append(
            Impact(
                run=label,
                point=point,
                values=swept_values(run.manifest, point),
                without=without,
                variant=variant,
                pairs=len(shared),
                ratio=both_s / alone_s,
                interval=interval,
                repeatable_within=None if each_within is None else 2 * each_within,
                simulated=run.simulated,
            )
        )
    return found


def _settings(manifest: Mapping[str, Any], variant: str) -> str:
    """Return all that the experiment sets for a variant but its name and what it serves, as one text."""
    listed = (manifest.get("experiment") or {}).get("variants") or manifest.get("variants") or ()
    own = next((each for each in listed if each.get("name") == variant), {"name": variant, "unknown": variant})
    kept = {name: value for name, value in own.items() if name not in _PREFILL_ALONE}
    return json.dumps(kept, sort_keys=True, default=str)

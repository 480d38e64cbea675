"""Test whether prefill in bubbles slows training down: compare variants that differ only in prefill."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan
from typing import Any

from wanbed.results.comparison.repeatability import repeatable_within
from wanbed.results.metrics.bootstrap import CONFIDENCE, median_of_medians, ratio_interval
from wanbed.results.reading.run import Run
from wanbed.results.reading.stored_trial import swept_values
from wanbed.results.reading.summaries.headline import point_text
from wanbed.results.report.prefill.prefill_service import serves

MARGIN = 0.005
"""The ratio counts as no impact if it differs from 1 by at most this: 0.5 %."""

FEWEST_PAIRS = 5
"""The fewest repeats of both variants that show the noise between runs well enough."""

WITHIN, BEYOND, UNDECIDED = "within", "beyond", "undecided"

_PREFILL_ALONE = ("name", "prefill", "pool")
"""The settings that may differ between a variant with prefill and its counterpart without."""


@dataclass(frozen=True)
class Impact:
    """A variant with prefill against the first variant without prefill that is otherwise equal, at one sweep point.

    ``ratio`` is the iteration time of ``variant`` divided by that of ``without``; each is the median over repeats of
    the repeats' medians, over the ``pairs`` repeats that both have. ``interval`` is the ratio's 95 % interval
    (``wanbed.results.metrics.bootstrap``), None if too few repeats were measured or the run was simulated.
    ``repeatable_within`` is the largest relative error of the ratio if it is known without repeats, else None; it is 0
    for a simulation, which is deterministic.
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
        """The sweep point's swept values as text for readers."""
        return point_text(self.values)

    @property
    def verdict(self) -> str:
        """Whether the interval lies within the margin, beyond it, or neither.

        Without an interval, ``repeatable_within`` gives one.
        """
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
        texts = {WITHIN: "no impact", BEYOND: "slower" if self.ratio > 1 else "faster", UNDECIDED: "undecided"}
        none = ", no interval" if few and self.interval is None else ""
        return texts[self.verdict] + (f", with {self.pairs} of at least {FEWEST_PAIRS} pairs{none}" if few else "")


def impacts(run: Run, label: str = "") -> list[Impact]:
    """Return the impact at each sweep point of each variant with prefill and a counterpart, in the order of trials."""
    times_s: dict[tuple[int, str], dict[int, list[float]]] = {}
    serving: dict[tuple[int, str], bool] = {}
    for trial, time_s in zip(run.trials, run.summary["iteration_time_s"], strict=True):
        key = (trial.point, trial.variant)
        serving[key] = serving.get(key, False) or serves(trial)
        if not isnan(time_s):
            times_s.setdefault(key, {})[trial.repeat] = [time_s]
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
        interval = None if run.exact(point) else ratio_interval(alone, both, CONFIDENCE)
        of_one_run = repeatable_within(run, point)
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
                repeatable_within=None if of_one_run is None else 2 * of_one_run,
                simulated=run.simulated,
            )
        )
    return found


def _settings(manifest: Mapping[str, Any], variant: str) -> str:
    """Return all settings of a variant, except its name, prefill and pool, as one JSON text."""
    listed = (manifest.get("experiment") or {}).get("variants") or manifest.get("variants") or ()
    own = next((each for each in listed if each.get("name") == variant), {"name": variant, "unknown": variant})
    kept = {name: value for name, value in own.items() if name not in _PREFILL_ALONE}
    return json.dumps(kept, sort_keys=True, default=str)

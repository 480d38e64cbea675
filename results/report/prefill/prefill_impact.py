"""Test whether prefill in bubbles slows training down: compare variants that differ only in prefill, in a table."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any

from wanbed.results.comparison.repeatability import IN_VIRTUAL_TIME, repeatable_within
from wanbed.results.metrics.bootstrap import CONFIDENCE, FEWEST_REPEATS, median_of_medians, ratio_interval
from wanbed.results.reading.headline import point_text
from wanbed.results.reading.run import Run
from wanbed.results.reading.stored_trial import swept_values
from wanbed.results.report.prefill.prefill_service import serves
from wanbed.results.report.table import Column, Table, TableCell, series_columns

MARGIN = 0.005
"""The ratio counts as no impact if it differs from 1 by at most this: 0.5 %."""
_MARGIN_TEXT = f"{100 * MARGIN:g} %"

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


def impact_table(impacts: Sequence[Impact]) -> Table | None:
    """Return the table of prefill's impact on training; None if no variant has a counterpart without prefill."""
    columns = [*series_columns(impacts), *_IMPACT]
    return Table.of("impact", "Impact on training", impacts, columns, "", note=_reading(impacts))


def _ratio(each: Impact) -> TableCell:
    interval = () if each.interval is None else ("{:.4f} to {:.4f}".format(*each.interval),)
    return TableCell(f"{each.ratio:.4f}", interval, each.ratio)


_IMPACT: tuple[Column[Impact], ...] = (
    Column("against", lambda each: each.without),
    Column("pairs", lambda each: str(each.pairs)),
    Column("ratio of iteration times", _ratio),
    Column(f"within {_MARGIN_TEXT}", lambda each: each.words),
)


def _reading(found: Sequence[Impact]) -> str:
    """Say how the impact on training is judged; "" if there is none to judge."""
    if not found:
        return ""
    if all(each.simulated and each.interval is None for each in found):
        return (
            f"Simulated without noise: no impact means a ratio of iteration times within {_MARGIN_TEXT} of 1. "
            "Only an emulation can show that prefill has no impact on real training."
        )
    return (
        f"No impact: the whole {100 * CONFIDENCE:.0f} % bootstrap interval of the ratio of iteration times lies within "
        f"{_MARGIN_TEXT} of 1. A pair is a repeat that both variants have; the two are run in turn. At least "
        f"{FEWEST_PAIRS} pairs are needed, and fewer than {FEWEST_REPEATS} have no interval."
        + (f" {_VIRTUAL}" if any(_in_virtual_time(each) for each in found) else "")
    )


_VIRTUAL = (
    f"In virtual time repeats differ by at most {100 * IN_VIRTUAL_TIME:g} %: a ratio that is within the margin by more "
    "than that needs no interval."
)


def _in_virtual_time(impact: Impact) -> bool:
    return impact.interval is None and bool(impact.repeatable_within)


def impact_records(impacts: Sequence[Impact]) -> list[dict[str, Any]]:
    """Return one record per impact, with the swept values in ``swept``."""
    records = []
    for each in impacts:
        low, high = each.interval or (None, None)
        records.append(
            {
                "swept": dict(each.values),
                "run": each.run,
                "variant": each.variant,
                "without": each.without,
                "pairs": each.pairs,
                "iteration_time_ratio": each.ratio,
                "iteration_time_ratio_low": low,
                "iteration_time_ratio_high": high,
                "verdict": each.verdict,
                "simulated": each.simulated,
            }
        )
    return records

"""Place swept values on an axis, and choose the sweep point of charts that cannot show all.

Values stand on the axis as numbers of one unit where they are such numbers, else side by side.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from wanbed.ground.units import parse_duration_ns, parse_fraction, parse_rate_bps, parse_size_bytes
from wanbed.results.reading.run import Run
from wanbed.results.reading.stored_trial import LATENCY_PATH, path_name
from wanbed.results.reading.trial_rows import TrialRows

_NS_PER_MS = 1e6

_LATENCY_TITLE = "one-way WAN latency"


def latency_ms(values: Mapping[str, str]) -> float | None:
    """Return the swept one-way WAN latency of a sweep point in milliseconds, None if it was not swept."""
    try:
        return parse_duration_ns(values.get(LATENCY_PATH)) / _NS_PER_MS
    except ValueError:
        return None


def _rate_mbps(text: str) -> float:
    rate_bps = parse_rate_bps(text)
    return math.nan if rate_bps is None else rate_bps / 1e6


_UNITS: Mapping[str, Callable[[str], float]] = {
    "": float,
    "ms": lambda text: parse_duration_ns(text) / _NS_PER_MS,
    "Mbit/s": _rate_mbps,
    "MiB": lambda text: parse_size_bytes(text) / 2**20,
    "%": lambda text: 100 * parse_fraction(text),
}


@dataclass(frozen=True)
class SweptAxis:
    """An axis of the values of one swept path, which are all numbers of ``unit``."""

    path: str
    unit: str

    @classmethod
    def of(cls, path: str, texts: Sequence[str]) -> "SweptAxis | None":
        """Return the axis of these values, None if they are not all finite numbers of one unit."""
        for unit, parse in _UNITS.items():
            try:
                if all(math.isfinite(parse(text)) for text in texts):
                    return cls(path, unit)
            except ValueError:
                continue
        return None

    def value(self, values: Mapping[str, str]) -> float:
        """Return the number of a sweep point on this axis."""
        return _UNITS[self.unit](values[self.path])

    @property
    def name(self) -> str:
        """The name of what was swept, for titles and captions."""
        return "WAN latency" if self.path == LATENCY_PATH else path_name(self.path)

    def title(self, labels: Mapping[str, str]) -> str:
        """Return the text beside the axis, with its unit. ``labels`` may give the path another name."""
        return swept_title(self.path, self.unit, labels)


def swept_title(path: str, unit: str, labels: Mapping[str, str]) -> str:
    """Return the text beside an axis of a swept path. ``labels`` may give the path another name."""
    usual = _LATENCY_TITLE if path == LATENCY_PATH and unit else path_name(path)
    return f"{labels.get(path, usual)}{f' ({unit})' if unit else ''}"


@dataclass(frozen=True, eq=False)
class DrawnPoint:
    """A run's sweep point in charts that cannot show all: that with the most measured variants.

    Of several, it is the one with the highest latency. ``repeats`` has by variant the repeats with a measured
    iteration, ``typical`` the one whose iteration time is closest to their median; both have measured variants only.
    """

    run: Run
    point: int
    where: str
    repeats: Mapping[str, Sequence[TrialRows]]
    typical: Mapping[str, TrialRows]

    @classmethod
    def of(cls, run: Run) -> "DrawnPoint | None":
        """Return the drawn point of a run, None if nothing was measured."""
        point = _representative_point(run)
        if point is None:
            return None
        typical = {variant: trial for variant in run.variants if (trial := run.typical_trial(point, variant))}
        known = run.times_s.notna()
        measured = [
            trial for trial, is_known in zip(run.trials, known, strict=True) if is_known and trial.point == point
        ]
        return cls(
            run,
            point,
            run.where(point),
            {name: [run.rows[trial.id] for trial in measured if trial.variant == name] for name in typical},
            {name: run.rows[trial.id] for name, trial in typical.items()},
        )


def at_their_point(points: Sequence[str]) -> str:
    """Return the end of a chart's title where all drawn points are one; empty where they differ or nothing was swept.

    ``points`` are their texts.
    """
    return f", at {points[0]}" if len(set(points)) == 1 and points[0] else ""


def _representative_point(run: Run) -> int | None:
    variants: dict[int, set[str]] = {}
    for trial, measured in zip(run.trials, run.times_s.notna(), strict=True):
        if measured:
            variants.setdefault(trial.point, set()).add(trial.variant)
    return max(
        variants,
        key=lambda point: (len(variants[point]), latency_ms(run.values(point)) or 0, point),
        default=None,
    )

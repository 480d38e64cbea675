"""Pair the trials of two runs by sweep point, identified by its swept values, and by variant."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any

from wanbed.ground.errors import InputError
from wanbed.ground.impairments import IMPAIRMENTS
from wanbed.results.metrics.bootstrap import median_of_medians
from wanbed.results.metrics.iterations import over_bound
from wanbed.results.reading.run import Run
from wanbed.results.reading.stored_trial import point_text
from wanbed.results.reading.validity import Saturation
from wanbed.results.text import bound_text, list_text


class PairingError(InputError):
    """The runs or variants cannot be paired. The message is one line."""


@dataclass(frozen=True)
class Side:
    """One variant in one sweep point of one run: the iteration time of each repeat in seconds, or another figure of it.

    A repeat's iteration time is the period of its training: one figure, since successive iterations depend on each
    other. ``iterations`` is over how many it is, in all repeats together. ``exact`` marks a simulation that draws
    nothing. ``repeatable_within`` is the largest relative difference between two runs of it if that is known without
    repeats, else None. ``saturated`` is the number of repeats with a saturated machine. ``bound`` is the time below
    which no iteration time can come and the part that decides, None if unknown. ``synchronizes_seldom`` marks replicas
    that train alone in between. ``activation_wire`` is the format in which activations crossed the WAN, None if they
    went as they are. ``usd_per_million_tokens`` is the median over repeats, None without prices.
    """

    point: int
    variant: str
    times_s: tuple[tuple[float, ...], ...]
    exact: bool
    repeatable_within: float | None = None
    saturated: int = 0
    bound: tuple[float, str] | None = None
    iterations: int = 0
    synchronizes_seldom: bool = False
    activation_wire: str | None = None
    usd_per_million_tokens: float | None = None

    @property
    def median_s(self) -> float | None:
        """Median over repeats of each repeat's iteration time; None if nothing was measured."""
        return median_of_medians(self.times_s)

    @property
    def over_bound(self) -> float | None:
        """The median divided by the bound; None if either is unknown."""
        return None if self.bound is None else over_bound(self.median_s, self.bound[0])

    @property
    def bound_text(self) -> str:
        """Return how far the median is above the bound, for readers."""
        return bound_text(self.over_bound, None if self.bound is None else self.bound[1])

    @property
    def repeats(self) -> int:
        """The number of repeats with a measured iteration."""
        return sum(1 for times in self.times_s if times)


@dataclass(frozen=True)
class Pair:
    """Two sides to compare: B's against A's, at the same swept values."""

    point: Mapping[str, str]
    a: Side
    b: Side

    @property
    def priced(self) -> bool:
        """Tell whether the costs of a side are known."""
        return self.a.usd_per_million_tokens is not None or self.b.usd_per_million_tokens is not None

    @property
    def point_text(self) -> str:
        """The swept values as text for readers; empty if nothing was swept."""
        return point_text(self.point)

    @property
    def variant_text(self) -> str:
        """The variant's name, or both names if they differ."""
        return self.a.variant if self.a.variant == self.b.variant else f"{self.a.variant} -> {self.b.variant}"


@dataclass(frozen=True)
class Unpaired:
    """A sweep point or variant that only one run has.

    ``field`` is ``sweep_points`` or ``variants``, ``run`` is "A" or "B", and ``name`` is the sweep point or variant.
    """

    field: str
    run: str
    name: str


@dataclass(frozen=True)
class Pairing:
    """All pairs, in A's order of sweep points and variants, and the sweep points and variants without a counterpart."""

    pairs: tuple[Pair, ...]
    unpaired: tuple[Unpaired, ...]


def pair_runs(a: Run, b: Run, names: Sequence[tuple[str, str]] = ()) -> Pairing:
    """Pair every sweep point and variant of A with B's of the same swept values and name.

    ``names`` pairs a variant of A with one of B that has another name. If the same run is given twice, only these pairs
    are compared. Sweep points and variants are taken from the manifest, even if no trial of them has finished.

    Raise PairingError if a run lacks one of the names, if a variant is paired twice, or if a run is given twice without
    ``names``.
    """
    twice = a.path.resolve() == b.path.resolve()
    if twice and not names:
        raise PairingError(f"{a.path} is given twice: give another run, or with --pair two of its variants")
    for run, side in ((a, 0), (b, 1)):
        for name in (pair[side] for pair in names):
            if name not in run.variants:
                raise PairingError(
                    f"--pair: {run.path} has no variant {name!r}, it has {list_text(list(run.variants))}"
                )
        if len({pair[side] for pair in names}) < len(names):
            raise PairingError(f"--pair: a variant of {run.path} is paired twice, leave one of the two out")
    paired = list(names)
    if not twice:
        taken = {own for own, _ in names}, {other for _, other in names}
        paired += [(name, name) for name in a.variants if name in set(b.variants) - taken[1] and name not in taken[0]]
        order = {name: position for position, name in enumerate(a.variants)}
        paired.sort(key=lambda pair: order[pair[0]])
    points_a, points_b = _points(a), _points(b)
    sides_a, sides_b = _Sides.of(a), _Sides.of(b)
    pairs = tuple(
        Pair(
            a.values(points_a[key]),
            sides_a.side(points_a[key], own),
            sides_b.side(points_b[key], other),
        )
        for key in points_a
        if key in points_b
        for own, other in paired
    )
    return Pairing(pairs, () if twice else tuple(_left_over(a, b, paired)))


_SweepPointKey = frozenset[tuple[str, str]]


def _points(run: Run) -> dict[_SweepPointKey, int]:
    numbers = [entry["index"] for entry in run.manifest.get("sweep_points") or () if "index" in entry]
    numbers += [trial.point for trial in run.trials]
    return {frozenset(run.values(number).items()): number for number in dict.fromkeys(numbers)}


@dataclass(frozen=True)
class _Sides:
    """A run's trials by sweep point and variant."""

    run: Run
    positions: Mapping[tuple[int, str], Sequence[int]]

    @classmethod
    def of(cls, run: Run) -> "_Sides":
        positions: dict[tuple[int, str], list[int]] = {}
        for position, trial in enumerate(run.trials):
            positions.setdefault((trial.point, trial.variant), []).append(position)
        return cls(run, positions)

    def side(self, point: int, variant: str) -> Side:
        positions = self.positions.get((point, variant), ())
        own, trials = self.run.summary.iloc[list(positions)], [self.run.trials[each] for each in positions]
        return Side(
            point,
            variant,
            tuple(() if isnan(time_s) else (float(time_s),) for time_s in own["iteration_time_s"]),
            self.run.exact(point),
            repeatable_within(self.run, point),
            Saturation.of(trial.facts for trial in trials).saturated,
            trials[-1].bound if trials else None,
            sum(map(len, own["iteration_times_s"])),
            any(trial.sync_every is not None for trial in trials),
            next((trial.activation_wire for trial in trials), None),
            None if isnan(usd := own["usd_per_million_tokens"].median()) else float(usd),
        )


def _left_over(a: Run, b: Run, paired: Sequence[tuple[str, str]]) -> list[Unpaired]:
    points_a, points_b = _points(a), _points(b)
    found = [
        Unpaired(
            "sweep_points",
            name,
            run.where(own[key]) or "the one without swept values",
        )
        for name, run, own, other in (("A", a, points_a, points_b), ("B", b, points_b, points_a))
        for key in own
        if key not in other
    ]
    for side, (name, run) in enumerate((("A", a), ("B", b))):
        known = {pair[side] for pair in paired}
        found += [Unpaired("variants", name, variant) for variant in run.variants if variant not in known]
    return found


IN_VIRTUAL_TIME = 0.001
"""The largest relative difference of two runs in virtual time, which ``tests/system/virtual_time/test_virtual_time.py``
checks."""


def repeatable_within(run: Run, point: int) -> float | None:
    """Return the largest relative difference of another run of that sweep point; None if only repeats can show it.

    A simulation is deterministic: 0. A run in virtual time nearly is, unless packets are lost or delayed at random.
    Where compute times are drawn, only repeats show what the draws do.
    """
    if run.drawn(point):
        return None
    if run.simulated:
        return 0.0
    if run.manifest.get("clock") != "virtual" or _random(run.manifest, point):
        return None
    return IN_VIRTUAL_TIME


def _random(manifest: Mapping[str, Any], point: int) -> bool:
    """Return whether any link of the sweep point delays or drops packets at random, or the manifest lists no links."""
    entry: Mapping[str, Any] = next(
        (each for each in manifest.get("sweep_points") or () if each.get("index") == point), {}
    )
    links = entry.get("wan")
    return links is None or any(link.get(each.field) for link in links for each in IMPAIRMENTS)

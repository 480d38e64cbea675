"""The results of each variant of each run in each sweep point, over its repeats, and what its variants differ in."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from wanbed.results.metrics.bootstrap import median_interval
from wanbed.results.metrics.iterations import over_bound
from wanbed.results.reading.known_misses import KnownMiss, known_misses_of
from wanbed.results.reading.links import changing_links_at
from wanbed.results.reading.run import Run
from wanbed.results.reading.stored_trial import point_text
from wanbed.results.reading.validity import Saturation
from wanbed.results.text import count_text, list_text, percent_text, seconds_text

_FIGURES = (
    "iteration_time_s",
    "slowest_replica_time_s",
    "bound_s",
    "makespan_s",
    "gpu_utilization",
    "gpu_utilization_with_prefill",
    "wan_bytes",
    "wan_goodput_bps",
    "tokens_per_s",
    "usd_per_iteration",
    "egress_usd_per_iteration",
    "usd_per_h",
    "usd_per_million_tokens",
)


@dataclass(frozen=True)
class Disturbed:
    """The iterations of a variant whose links change or in which something is to fail, of all its repeats.

    ``worst_s`` is the longest one. ``lost`` is the share of their time beyond what as many median iterations take.
    """

    worst_s: float
    lost: float

    @classmethod
    def of(cls, iterations_s: Sequence[float]) -> "Disturbed | None":
        """Return what is known of these iterations, None if there are none."""
        if not iterations_s:
            return None
        together_s, typical_s = sum(iterations_s), len(iterations_s) * float(np.median(iterations_s))
        return cls(max(iterations_s), max(0.0, 1 - typical_s / together_s))

    @property
    def text(self) -> str:
        """Both figures for readers."""
        return f"worst {seconds_text(self.worst_s)}, {percent_text(self.lost)} lost"


@dataclass(frozen=True)
class TimeBound:
    """The time below which no iteration time can come, and the part of a trial that it consists of the most."""

    time_s: float
    part: str


@dataclass(frozen=True)
class IterationTimes:
    """The iteration times of a row. None means unknown.

    ``median_s`` is the median over repeats of the period of training, of which ``of_repeats_s`` has every one that is
    known, over ``iterations`` measured iterations of all repeats. ``interval_s`` is the 95 % interval of that median
    (``wanbed.results.metrics.bootstrap``); None if there are too few repeats or the times are ``exact``: simulated,
    with nothing drawn. ``makespan_s`` is what an iteration lasts by itself. ``disturbed`` is None where nothing was
    configured to change or fail. ``slowest_replica_s`` is the iteration time of the slowest of the replicas that have
    step clocks of their own.
    """

    median_s: float | None
    of_repeats_s: tuple[float, ...]
    interval_s: tuple[float, float] | None
    iterations: int
    exact: bool
    makespan_s: float | None = None
    disturbed: Disturbed | None = None
    slowest_replica_s: float | None = None

    @property
    def fastest_s(self) -> float | None:
        """The time of the fastest repeat; None if no repeat has one."""
        return min(self.of_repeats_s, default=None)

    @property
    def slowest_s(self) -> float | None:
        """The time of the slowest repeat; None if no repeat has one."""
        return max(self.of_repeats_s, default=None)

    @property
    def without_interval(self) -> str:
        """The reason why a measured iteration time has no interval; "" if it has one or needs none."""
        repeats = len(self.of_repeats_s)
        if self.exact or self.interval_s is not None or not repeats:
            return ""
        return f"{count_text(repeats, 'repeat')}, no interval"

    @property
    def range_s(self) -> tuple[float, float] | None:
        """The range from the fastest repeat to the slowest, if there are several and they have no interval."""
        several = self.without_interval and len(self.of_repeats_s) > 1
        return (min(self.of_repeats_s), max(self.of_repeats_s)) if several else None


@dataclass(frozen=True)
class GpuUtilization:
    """The share of the period in which training's GPUs computed, without and with prefill; None means unknown."""

    training: float | None
    with_prefill: float | None

    @property
    def prefilled(self) -> bool:
        """Tell whether any training GPU computed prefill in its bubbles."""
        return self.with_prefill != self.training


@dataclass(frozen=True)
class WanUse:
    """The bytes that a trial sent over the WAN, and the payload per second after warm-up; None means unknown."""

    sent_bytes: float | None
    goodput_bps: float | None


@dataclass(frozen=True)
class RowCost:
    """Hold the costs of training by the prices of the file; ``usd_per_million_tokens`` is None without a model."""

    usd_per_iteration: float
    egress_usd_per_iteration: float
    usd_per_h: float
    usd_per_million_tokens: float | None


@dataclass(frozen=True)
class Standing:
    """The trust that figures deserve.

    ``not_modelled`` lists the configured settings that the simulation does not model, ``known_misses`` the kinds of
    simulations known to be off that it is of.
    """

    simulated: bool
    calibrated: bool
    saturation: Saturation
    not_modelled: tuple[str, ...] = ()
    known_misses: tuple[KnownMiss, ...] = ()


@dataclass(frozen=True)
class HeadlineRow:
    """One variant of one run in one sweep point. Figures are medians over repeats; None means unknown.

    ``differs`` names what it has otherwise than the run's first variant, which ``speed_up`` is over.
    ``synchronizes_seldom`` marks replicas that train alone in between. ``activation_wire`` is the format in which
    activations crossed the WAN, None if they went as they are.
    """

    run: str
    point: int
    values: Mapping[str, str]
    variant: str
    repeats: int
    times: IterationTimes
    gpus: GpuUtilization
    wan: WanUse
    standing: Standing
    speed_up: float | None
    tokens_per_s: float | None
    bound: TimeBound | None = None
    cost: RowCost | None = None
    differs: tuple[str, ...] = ()
    synchronizes_seldom: bool = False
    activation_wire: str | None = None

    @property
    def over_bound(self) -> float | None:
        """The iteration time divided by its lower bound; None if either is unknown."""
        return None if self.bound is None else over_bound(self.times.median_s, self.bound.time_s)

    @property
    def where(self) -> str:
        """The sweep point's swept values as text for readers."""
        return point_text(self.values)


def _median(values: npt.NDArray[np.float64]) -> float | None:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else None


def _disturbed(run: Run, positions: Sequence[int], iterations_s: Sequence[float]) -> Disturbed | None:
    """Return the figures of trials whose links change, or in which something is to fail; None of others."""
    trials = [run.trials[position] for position in positions]
    configured = changing_links_at(run.manifest, trials[0].point) or any(trial.faults is not None for trial in trials)
    return Disturbed.of(iterations_s) if configured else None


def headline(run: Run, label: str = "") -> list[HeadlineRow]:
    """Return a row for each sweep point and variant that has a finished trial, in the order of the run's trials.

    ``speed_up`` is the iteration time of the run's first variant in that sweep point divided by this variant's.
    ``label`` distinguishes the run from others.
    """
    figures = {name: run.summary[name].to_numpy(np.float64, na_value=np.nan) for name in _FIGURES}
    all_times_s: list[list[float]] = list(run.summary["iteration_times_s"])
    calibrated = run.summary["calibrated"].to_numpy(bool)
    parts = run.summary["bound_part"]
    trials_of: dict[tuple[int, str], list[int]] = {}
    for position, trial in enumerate(run.trials):
        trials_of.setdefault((trial.point, trial.variant), []).append(position)
    baseline = run.variants[0] if run.variants else ""
    differing = {variant: differences(run.manifest, baseline, variant) for variant in run.variants}
    times_s: dict[tuple[int, str], float | None] = {}
    rows = []
    for (point, variant), positions in trials_of.items():
        of_trials = {name: values[positions] for name, values in figures.items()}
        measured_s = of_trials["iteration_time_s"]
        measured_s = measured_s[~np.isnan(measured_s)]
        time_s = times_s[point, variant] = _median(measured_s)
        baseline_s = times_s.get((point, baseline))
        bound_s = _median(of_trials["bound_s"])
        of_repeats_s = [all_times_s[position] for position in positions]
        first = run.trials[positions[0]]
        rows.append(
            HeadlineRow(
                run=label,
                point=point,
                values=first.values,
                variant=variant,
                repeats=len(positions),
                times=IterationTimes(
                    median_s=time_s,
                    of_repeats_s=tuple(map(float, measured_s)),
                    interval_s=None if run.exact(point) else median_interval([[time_s] for time_s in measured_s]),
                    iterations=sum(map(len, of_repeats_s)),
                    exact=run.exact(point),
                    makespan_s=_median(of_trials["makespan_s"]),
                    disturbed=_disturbed(run, positions, [time_s for own_s in of_repeats_s for time_s in own_s]),
                    slowest_replica_s=_median(of_trials["slowest_replica_time_s"]),
                ),
                gpus=GpuUtilization(
                    _median(of_trials["gpu_utilization"]), _median(of_trials["gpu_utilization_with_prefill"])
                ),
                wan=WanUse(_median(of_trials["wan_bytes"]), _median(of_trials["wan_goodput_bps"])),
                standing=Standing(
                    simulated=run.simulated,
                    calibrated=bool(calibrated[positions].all()),
                    saturation=Saturation.of(run.trials[position].facts for position in positions),
                    not_modelled=tuple(run.summary["not_modelled"].iloc[positions[0]]),
                    known_misses=known_misses_of(first.facts),
                ),
                speed_up=baseline_s / time_s if baseline_s and time_s else None,
                tokens_per_s=_median(of_trials["tokens_per_s"]),
                bound=None if bound_s is None else TimeBound(bound_s, parts.iloc[positions].dropna().iloc[0]),
                cost=_cost(of_trials),
                differs=differing[variant],
                synchronizes_seldom=first.sync_every is not None,
                activation_wire=first.activation_wire,
            )
        )
    return rows


def _cost(of_trials: Mapping[str, npt.NDArray[np.float64]]) -> RowCost | None:
    usd, egress_usd, usd_per_h, usd_per_million = (_median(of_trials[field.name]) for field in fields(RowCost))
    if usd is None or egress_usd is None or usd_per_h is None:
        return None
    return RowCost(usd, egress_usd, usd_per_h, usd_per_million)


def by_point(rows: Sequence[HeadlineRow]) -> list[tuple[str, list[HeadlineRow]]]:
    """Group the rows of all runs by swept values, in order of appearance; order each group by variant, then run."""
    variants, runs = (list(dict.fromkeys(names)) for names in ([r.variant for r in rows], [r.run for r in rows]))
    groups: dict[str, list[HeadlineRow]] = {}
    for row in rows:
        groups.setdefault(row.where, []).append(row)
    return [
        (where, sorted(own, key=lambda row: (variants.index(row.variant), runs.index(row.run))))
        for where, own in groups.items()
    ]


def worth_note(rows: Sequence[HeadlineRow]) -> str:
    """Return the sentences about rows of which some learn otherwise than others; empty if all are alike.

    They do if they synchronise seldom, or if activations cross the WAN in another format.
    """
    seldom = [row.variant for row in rows if row.synchronizes_seldom]
    notes = [worth_text(seldom)] if 0 < len(seldom) < len(rows) else []
    if len({row.activation_wire for row in rows}) > 1:
        notes.append(encoded_text([row.variant for row in rows if row.activation_wire is not None]))
    return " ".join(notes)


def worth_text(seldom: Iterable[str]) -> str:
    """Return what tokens and iteration times of these variants are worth beside those of others."""
    return (
        f"A token per second of {list_text(list(dict.fromkeys(seldom)))} is not worth one of data parallelism; "
        "pipelines change nothing. Compare such variants by their losses, and by bytes, not by iteration times alone."
    )


_MOST = 5
"""The most fields that are named of one variant."""

_SHOWN_CHARACTERS = 40


@dataclass(frozen=True)
class VariantFields:
    """The fields that not all variants have alike: their names as ``columns``, and the values of each variant."""

    columns: tuple[str, ...]
    rows: Mapping[str, tuple[str, ...]]


def variant_fields(manifest: Mapping[str, Any], variants: Sequence[str]) -> VariantFields:
    """Return the fields in which variants differ, of their sections too; a variant that the manifest lacks has none."""
    by_name = _fields_of_variants(manifest)
    found = {name: by_name[name] for name in variants if name in by_name}
    names = dict.fromkeys(field for own in found.values() for field in own)
    columns = tuple(field for field in names if len({_text(own.get(field)) for own in found.values()}) > 1)
    return VariantFields(
        columns, {name: tuple(_text(own.get(field)) for field in columns) for name, own in found.items()}
    )


def differences(manifest: Mapping[str, Any], first: str, variant: str) -> tuple[str, ...]:
    """Return ``connections auto against 1`` for each field of ``variant`` that ``first`` has otherwise.

    Return () if the manifest lacks one of the two.
    """
    fields = variant_fields(manifest, (first, variant))
    if not {first, variant} <= fields.rows.keys():
        return ()
    values = zip(fields.columns, fields.rows[variant], fields.rows[first], strict=True)
    named = [f"{name.replace('_', ' ')} {own} against {other}" for name, own, other in values]
    return (*named[:_MOST], *([f"{len(named) - _MOST} more"] if len(named) > _MOST else []))


def _fields_of_variants(manifest: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    experiment = manifest.get("experiment")
    document = experiment if isinstance(experiment, Mapping) else manifest
    shared = document.get("training")
    inherited = shared if isinstance(shared, Mapping) else {}
    listed = document.get("variants") or ()
    return {str(each.get("name")): dict(_fields(each, inherited)) for each in listed if isinstance(each, Mapping)}


def _fields(document: Mapping[str, Any], inherited: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a variant by their own names, those of its sections too.

    What its ``training`` leaves out is ``inherited``.
    """
    for name, value in document.items():
        if name == "name":
            continue
        if isinstance(value, Mapping):
            own = {key: inherited.get(key) if each is None else each for key, each in value.items()}
            yield from _fields(own if name == "training" else value, inherited)
        else:
            yield name, value


def _text(value: Any) -> str:
    text = _written(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def _written(value: Any) -> str:
    """Return a value as a file has it; one that is left out as ``default``."""
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    return "default" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def encoded_text(encoded: Iterable[str]) -> str:
    """Return what iteration times of these variants are worth beside those of others."""
    return (
        f"What crosses the WAN between stages of {list_text(list(dict.fromkeys(encoded)))} is encoded, which changes "
        "what is learnt. Compare such variants by their losses, and by bytes, not by iteration times alone."
    )

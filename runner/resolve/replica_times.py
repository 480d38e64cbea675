"""Resolve the compute times of GPUs that differ from other replicas of their stage, or vary.

They come from a measured run, from slower GPUs, and from jitter.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from wanbed.ground.errors import InputError, did_you_mean
from wanbed.ground.exclusions import Exclusion
from wanbed.results.text import list_text
from wanbed.runner.experiment.compute_spec import SlowerSpec
from wanbed.runner.experiment.experiment_spec import ExperimentSpec
from wanbed.runner.resolve.dilation import dilated_ns
from wanbed.runner.resolve.measured_times import FIELD, MeasuredSource, MeasuredTimes, median_ns
from wanbed.runner.resolve.placement import Placement, StagePlace
from wanbed.runner.resolve.stage_costs import StageCosts
from wanbed.runner.resolve.written_variant import WrittenVariant
from wanbed.testbed.network.topology import Topology
from wanbed.workloads.compute.replay import ReplayDurations
from wanbed.workloads.compute.varied_durations import Jitter, Variation


@dataclass(frozen=True)
class ReplicaTimes:
    """The compute times of every GPU, by rank, in one repeat of a variant.

    ``durations`` are the usual ones, without jitter. ``jitter`` varies them, or ``measured_ns``, by rank, has for each
    kind of action the durations that it is drawn from; () if nothing is. ``factors`` are those of ``compute.slower``,
    by rank and kind of action, and ``source`` is where measured times come from, None for the file and its profile.
    ``unmeasured`` has for each stage the kinds of action that the source has not.
    """

    durations: tuple[ReplayDurations, ...]
    factors: tuple[Mapping[str, float], ...]
    seed: int
    jitter: Jitter | None = None
    measured_ns: tuple[dict[str, list[int]], ...] = ()
    source: MeasuredSource | None = None
    unmeasured: tuple[frozenset[str], ...] = ()
    repeat: int = 0

    @property
    def varies(self) -> bool:
        """Tell whether times are drawn, so that repeats differ."""
        return self.jitter is not None or bool(self.measured_ns)

    @property
    def differ(self) -> bool:
        """Tell whether a factor of ``compute.slower`` is other than 1."""
        return any(set(own.values()) != {1.0} for own in self.factors)

    def variation(self, rank: int, pipeline: int, stage: int, microbatches: int, dilation: float) -> Variation | None:
        """Return how the times of a GPU vary in this repeat, None if they do not."""
        if not self.varies:
            return None
        measured_ns = self.measured_ns[rank] if self.measured_ns else {}
        if dilation != 1:
            measured_ns = {kind: [dilated_ns(each, dilation) for each in own] for kind, own in measured_ns.items()}
        return Variation(self.seed, self.repeat, pipeline, stage, microbatches, self.jitter, measured_ns)

    def without_variation(self) -> "ReplicaTimes":
        """Return the usual times alone."""
        return replace(self, jitter=None, measured_ns=(), repeat=0)

    def slowest(self, work: StageCosts) -> StageCosts:
        """Return the costs with the time of each kind of action at the slowest replica of each stage."""
        stages = work.stages
        times: dict[str, Any] = {
            entry.name: tuple(
                max(getattr(each, entry.name) for each in self.durations[stage::stages]) for stage in range(stages)
            )
            for entry in fields(ReplayDurations)
        }
        return replace(work, **times)

    def document(self, stages: int) -> Mapping[str, Any]:
        """Return what differs and varies, in plain JSON types.

        Factors are listed pipeline by pipeline: a number for all that a GPU computes, or those of kinds that differ.
        """
        of_gpus = [_written(own) for own in self.factors]
        pipelines = range(0, len(of_gpus), stages)
        factors = [of_gpus[first : first + stages] for first in pipelines] if self.differ else None
        facts = {
            "factors": factors,
            "jitter": None if self.jitter is None else asdict(self.jitter),
            "from": None if self.source is None else {**asdict(self.source), "resampled": bool(self.measured_ns)},
        }
        return {name: fact for name, fact in facts.items() if fact is not None}


_KINDS = {
    "optimizer_ns": "optimizer",
    **{f"{kind}_ns": kind for kind in ("forward", "backward", "recompute", "backward_input", "backward_weight")},
}
"""The kind of action whose time each field of ``ReplayDurations`` and ``StageCosts`` has."""


def usual_costs(written: WrittenVariant, work: StageCosts) -> StageCosts:
    """Return the stage costs without regard to which replica a GPU is: the medians of a measured run, if there is one.

    ``work`` has the times of the file or the profile. Raise InputError if the run has another number of stages.
    """
    measured = written.measured
    if measured is None:
        return work
    _check_stages(measured, work.stages)
    each = [_measured(work.replay(stage).durations, measured.of_stage(stage)) for stage in range(work.stages)]
    return _with_times(work, each)


def least_costs(written: WrittenVariant, work: StageCosts) -> StageCosts:
    """Return stage costs that are not above those of any GPU, wherever stages are placed.

    ``work`` has the times of the file or the profile. Factors below 1 count as if every GPU had all of them.
    """
    factors = _product((min(entry.factor, 1.0), entry) for entry in written.spec.compute.slower)
    measured = written.measured
    least = []
    for stage in range(work.stages):
        times = work.replay(stage).durations
        if measured is not None:
            _check_stages(measured, work.stages)
            replicas = [
                _measured(times, measured.durations_ns[pipeline, stage]) for pipeline in range(measured.pipelines)
            ]
            # With another number of pipelines, all replicas are taken together.
            replicas.append(_measured(times, measured.of_stage(stage)))
            times = replace(times, **{name: min(getattr(own, name) for own in replicas) for name in _KINDS})
        least.append(_factored(times, factors))
    return _with_times(work, least)


def _with_times(work: StageCosts, each: Sequence[ReplayDurations]) -> StageCosts:
    """Return the stage costs with these times of each stage."""
    times: dict[str, Any] = {name: tuple(getattr(own, name) for own in each) for name in _KINDS}
    return replace(work, **times)


def replica_times(written: WrittenVariant, placement: Placement, work: StageCosts) -> ReplicaTimes | None:
    """Return the compute times of each GPU, None if all replicas are alike and nothing varies.

    ``work`` has the times of the file or the profile. Raise InputError for a ``compute.slower`` that names no GPU of
    the topology, and for a measured run that does not fit.
    """
    spec, compute, measured = written.spec, written.spec.compute, written.measured
    _check_names(compute.slower, written.topology)
    jitter = None if compute.jitter is None else compute.jitter.jitter
    factors = tuple(_factors(compute.slower, place) for place in placement.places)
    if measured is None and jitter is None and all(set(own.values()) == {1.0} for own in factors):
        return None
    pipelines, stages = len(placement.pipelines), placement.stages
    of_file = [work.replay(stage).durations for stage in range(stages)]
    durations, drawn = [], []
    unmeasured: tuple[frozenset[str], ...] = ()
    if measured is not None:
        _check_stages(measured, stages)
        unmeasured = tuple(_unmeasured(measured, stage, pipelines) for stage in range(stages))
    for place, own_factors in zip(placement.places, factors, strict=True):
        usual = of_file[place.stage]
        if measured is not None:
            own = measured.of(place.pipeline, place.stage, pipelines)
            usual = _measured(usual, own)
            if compute.resample:
                drawn.append(
                    {kind: [_times(each, own_factors[kind]) for each in values] for kind, values in own.items()}
                )
        durations.append(_factored(usual, own_factors))
    return ReplicaTimes(
        tuple(durations),
        factors,
        spec.seed,
        jitter,
        tuple(drawn),
        None if measured is None else measured.source,
        unmeasured,
    )


def unmatched_slower(spec: ExperimentSpec, placements: Sequence[Placement]) -> Iterator[Exclusion]:
    """Yield the entries of ``compute.slower`` that are about no GPU that trains, in any variant."""
    for position, entry in enumerate(spec.compute.slower):
        yield Exclusion(
            f"compute.slower.{position}",
            f"no stage is computed at {entry.choice}",
            "name GPUs that train",
            when=not any(_matches(entry, place) for placement in placements for place in placement.places),
            leave="the entry",
        )


def check_measured(
    source: MeasuredSource, unmeasured: Sequence[frozenset[str]], kinds: Mapping[int, Sequence[str]]
) -> None:
    """Raise InputError if the measured run lacks a kind of action that a schedule has, by stage, in ``kinds``."""
    for stage, own in kinds.items():
        lacking = [kind for kind in own if kind in unmeasured[stage]]
        if lacking:
            raise InputError(
                f"{FIELD}: {source.run} has no {list_text(lacking)} of stage {stage} after warm-up in its "
                f"variant {source.variant!r}: take a run with the same kinds of work"
            )


def _unmeasured(measured: MeasuredTimes, stage: int, pipelines: int) -> frozenset[str]:
    """Return the kinds of action without a time at some replica of a stage."""
    replicas = [measured.of(pipeline, stage, pipelines) for pipeline in range(pipelines)]
    return frozenset(kind for kind in _KINDS.values() if not all(kind in own for own in replicas))


def _measured(usual: ReplayDurations, own: Mapping[str, Sequence[int]]) -> ReplayDurations:
    """Return the medians of measured durations, and the usual ones of kinds that were not measured.

    Whether a stage recomputes is the file's to say.
    """
    medians = {name: median_ns(own[kind]) for name, kind in _KINDS.items() if kind in own}
    if not usual.recompute_ns:
        medians.pop("recompute_ns", None)
    return replace(usual, **medians)


def _factored(durations: ReplayDurations, factors: Mapping[str, float]) -> ReplayDurations:
    times = {name: getattr(durations, name) for name in _KINDS}
    own = {name: _times(time, factors[_KINDS[name]]) for name, time in times.items() if time is not None}
    return replace(durations, **own)


def _times(duration_ns: int, factor: float) -> int:
    """Return the duration times the factor in whole nanoseconds. Only 0 stays 0."""
    return max(round(duration_ns * factor), 1) if duration_ns else 0


def _factors(entries: Sequence[SlowerSpec], place: StagePlace) -> dict[str, float]:
    """Return the factor of each kind of action at a GPU."""
    return _product((entry.factor, entry) for entry in entries if _matches(entry, place))


def _product(factors: Iterable[tuple[float, SlowerSpec]]) -> dict[str, float]:
    """Return the product of factors, each for the actions of an entry, by kind of action."""
    found = dict.fromkeys(_KINDS.values(), 1.0)
    for factor, entry in factors:
        for kind in found:
            if any(kind == each or kind.startswith(f"{each}_") for each in entry.actions):
                found[kind] *= factor
    return found


def _written(factors: Mapping[str, float]) -> float | dict[str, float]:
    if len(set(factors.values())) == 1:
        return factors["forward"]
    return {kind: factor for kind, factor in factors.items() if factor != 1}


def _matches(entry: SlowerSpec, place: StagePlace) -> bool:
    return (
        entry.datacenter in {None, place.datacenter}
        and entry.host in {None, place.host.name}
        and entry.pipeline in {None, place.pipeline}
        and entry.stage in {None, place.stage}
    )


def _check_stages(measured: MeasuredTimes, stages: int) -> None:
    if measured.stages != stages:
        raise InputError(
            f"{FIELD}: {measured.source.run} measured {measured.stages} stages, and here are {stages}: give "
            f"training.stages: {measured.stages}, or another run"
        )


def _check_names(entries: Sequence[SlowerSpec], topology: Topology) -> None:
    known = {
        "datacenter": [datacenter.name for datacenter in topology.datacenters],
        "host": [host.name for host in topology.hosts],
    }
    for position, entry in enumerate(entries):
        for name, names in known.items():
            written = getattr(entry, name)
            if written is not None and written not in names:
                some = list_text(names if len(names) <= 5 else [*names[:4], f"{len(names) - 4} more"])
                raise InputError(
                    f"compute.slower.{position}.{name}: no {name} {written!r}, "
                    f"{did_you_mean(written, names, f'there are {some}')}"
                )

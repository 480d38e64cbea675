"""Describe the compute times of GPUs that differ from those of other replicas of their stage, or vary."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from wanbed.runner.resolve.dilation import dilated_ns
from wanbed.runner.resolve.measured_times import MeasuredSource
from wanbed.runner.resolve.stage_costs import StageCosts
from wanbed.workloads.compute.replay import ReplayDurations
from wanbed.workloads.compute.varied_durations import Jitter, Variation


@dataclass(frozen=True)
class ReplicaTimes:
    """The compute times of every GPU, by rank, in one repeat of a variant.

    ``durations`` are the usual ones, without jitter. ``jitter`` varies them, or ``measured_ns``, by rank, has for each
    kind of action the durations that it is drawn from; () if nothing is. ``factors`` are those of ``compute.slower``,
    by rank, and ``source`` is where measured times come from, None for the file and its profile. ``unmeasured`` has for
    each stage the kinds of action that the source has not.
    """

    durations: tuple[ReplayDurations, ...]
    factors: tuple[float, ...]
    seed: int
    jitter: Jitter | None = None
    measured_ns: tuple[dict[str, list[int]], ...] = ()
    source: MeasuredSource | None = None
    unmeasured: tuple[frozenset[str], ...] = ()
    repeat: int = 0

    @property
    def varies(self) -> bool:
        """Whether times are drawn, so that repeats differ."""
        return self.jitter is not None or bool(self.measured_ns)

    @property
    def differ(self) -> bool:
        """Whether a factor of ``compute.slower`` is other than 1."""
        return bool(set(self.factors) - {1.0})

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
        """Return what differs and varies, in plain JSON types. Factors are listed pipeline by pipeline."""
        pipelines = range(0, len(self.factors), stages)
        factors = [list(self.factors[first : first + stages]) for first in pipelines] if self.differ else None
        facts = {
            "factors": factors,
            "jitter": None if self.jitter is None else asdict(self.jitter),
            "from": None if self.source is None else {**asdict(self.source), "resampled": bool(self.measured_ns)},
        }
        return {name: fact for name, fact in facts.items() if fact is not None}

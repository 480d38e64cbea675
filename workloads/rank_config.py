"""The configuration of a rank that trains, as a JSON file. A rank takes all its settings from it.

The runner writes one for each rank. The rank reads it with the standard library only.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wanbed.ground.dataclass_json import read_config
from wanbed.workloads.compute.backends.backend import ComputeBackend, ComputeConfig, load_backend
from wanbed.workloads.connected_config import ConnectedConfig
from wanbed.workloads.kept_files import KeptFilesConfig
from wanbed.workloads.schedules.flushes import iteration_schedule
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.schedules.schedule import Schedule, create_schedule
from wanbed.workloads.serving.serving_configs import GpuServingConfig


@dataclass(frozen=True)
class ScheduleConfig:
    """The schedule of a rank's pipeline: ``class_path``, ``package.module:Class``, with ``options`` as its keywords."""

    class_path: str
    shape: PipelineShape
    options: dict[str, Any] = field(default_factory=dict)

    def create(self) -> Schedule:
        """Create the schedule of one iteration. Raise ValueError if the path, the options or the shape are invalid."""
        return iteration_schedule(self.shape, lambda shape: create_schedule(self.class_path, shape, self.options))


@dataclass(frozen=True, kw_only=True)
class RankConfig(ConnectedConfig):
    """One rank that computes a stage of a pipeline, by its schedule.

    - ``iterations``: ``links.first_iteration`` is the one to begin with.
    - ``compute``: the computation of the stage.
    - ``serving``: the prefill that the GPU runs while training leaves it idle. It is replayed, or computed by torch if
      training is.
    - ``overlap``: whether the rank computes while it sends; if not, it starts nothing until a message has left.
    - ``kept``: the files that the rank writes of the model. Only for a back end that trains.

    Raises ValueError naming the field.
    """

    schedule: ScheduleConfig
    compute: ComputeConfig
    serving: GpuServingConfig | None = None
    overlap: bool = True
    kept: KeptFilesConfig = field(default_factory=KeptFilesConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.place.stage < self.shape.stages:
            raise ValueError(f"place.stage: {self.place.stage} is none of the {self.shape.stages} stages")
        self._check_links()
        self._check_compute()

    @property
    def shape(self) -> PipelineShape:
        """The shape of the rank's pipeline."""
        return self.schedule.shape

    def _check_links(self) -> None:
        links, stage = self.links, self.place.stage
        last, divided = self.shape.stages - 1, self.shape.virtual_stages > 1
        if links.iterations != self.iterations:
            raise ValueError(f"links.iterations: {links.iterations}, where the rank's is {self.iterations}")
        if links.first_iteration >= self.iterations:
            raise ValueError(f"links.first_iteration: {links.first_iteration}, of {self.iterations} iterations")
        found = dict(links.boundaries.named)
        for name, expected in (("previous", stage > 0 and not divided), ("following", stage < last and not divided)):
            if (name in found) != expected:
                has = "one" if expected else "none"
                raise ValueError(f"links.boundaries.{name}: stage {stage} of {self.shape.stages} has {has}")
        microbatches = links.boundaries.microbatches
        if found and microbatches != self.shape.microbatches:
            raise ValueError(
                f"links.boundaries.microbatches: {microbatches}, where the shape has {self.shape.microbatches}"
            )
        sums = self.shape.flushes if self.shape.sums_flushes else 1
        if links.rings.replicas and links.rings.sums != sums:
            raise ValueError(f"links.rings.sums: {links.rings.sums}, where the shape has {sums}")
        if links.exchanges and not divided:
            raise ValueError("links.exchanges: stages that are not divided have boundaries")

    def _check_compute(self) -> None:
        try:
            backend = load_backend(self.compute.backend)
        except ValueError as fault:
            raise ValueError(f"compute.backend: {fault}") from None
        if self.serving is not None and (self.serving.inference is not None) != backend.computes_prefill:
            raise ValueError("serving.inference: torch computes training and prefill of a GPU, or neither")
        if self.compute.collective is not None and (self.links.rings.replicas or not backend.sums_on_device):
            raise ValueError(
                "compute.collective: torch sums what torch has computed, and in place of the ring: give one of both"
            )
        self._check_synchronization(backend)
        if self.shape.sums_flushes and not backend.sums_flushes:
            raise ValueError(f"schedule.shape.sums_flushes: {backend.title} sums whole iterations only")
        if self.links.rings.buckets and not backend.completes_buckets:
            raise ValueError(f"links.rings.buckets: {backend.title} completes none before its end, give 0")
        chunks = self.shape.virtual_stages
        if len(self.compute.chunks) != (chunks if chunks > 1 else 0):
            raise ValueError(f"compute.chunks: {len(self.compute.chunks)}, where the shape has {chunks} virtual stages")
        virtual = self.compute.computed.virtual
        if (virtual is None) != (chunks == 1):
            raise ValueError(f"compute.computed.virtual: {virtual}, where the shape has {chunks} virtual stages")
        if chunks > 1 and not backend.virtual_stages:
            raise ValueError(f"schedule.shape.virtual_stages: {backend.title} computes none")
        if self.kept.checkpoints is not None and not backend.saves_state:
            raise ValueError(f"kept.checkpoints: {backend.title} saves no state, leave them out")
        if self.kept.snapshots is not None and not backend.trains:
            raise ValueError(f"kept.snapshots: {backend.title} learns no weights, leave them out")
        if self.kept.gradients is not None and not backend.trains:
            raise ValueError(f"kept.gradients: {backend.title} makes none, leave the file out")
        stage = self.place.stage
        recompute_ns, recomputes = self.compute.costs.durations.recompute_ns, self.shape.recomputes(stage)
        if recomputes != (recompute_ns > 0):
            raise ValueError(
                f"compute.costs.durations.recompute_ns: {recompute_ns}, where the shape says that stage {stage} "
                f"{'recomputes' if recomputes else 'does not recompute'}"
            )

    def _check_synchronization(self, backend: type[ComputeBackend]) -> None:
        synchronizes = self.links.rings.synchronizations is not None or self.links.star is not None
        if (self.compute.synchronization is not None) != synchronizes:
            raise ValueError(
                "links.rings.synchronizations: give them with compute.synchronization, or links.star, or neither"
            )
        if self.compute.device.swapping is not None and not (backend.swaps and synchronizes):
            raise ValueError(f"compute.device.swapping: {backend.title} does not swap, or sums gradients: give none")
        if synchronizes and not backend.synchronizes:
            raise ValueError(f"compute.synchronization: {backend.title} sums gradients only, leave it out")


def read_rank_config(path: Path) -> RankConfig:
    """Read a file of ``RankConfig.write``. Raise ValueError, one line with path and field; OSError if unreadable."""
    return read_config(RankConfig, path)

"""The configuration of one rank, as a JSON file. A rank takes all its settings from it.

The runner writes one for each rank. The rank reads it with the standard library only.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wanbed.ground.dataclass_json import read_config, write_config
from wanbed.workloads.compute.backends.backend import ComputeBackend, ComputeConfig, load_backend
from wanbed.workloads.kept_files import KeptFilesConfig
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.serving.serving_configs import GpuServingConfig
from wanbed.workloads.transport.links_config import LinksConfig, RendezvousConfig


@dataclass(frozen=True)
class RankConfig:
    """One rank of one trial. Durations are on the testbed's clock (dilated if the run is).

    - ``iterations``: includes those of the warm-up; ``links.first_iteration`` is the one to begin with.
    - ``schedule``: the path of a class, ``package.module:Class``; ``schedule_options`` are its keyword arguments.
    - ``compute``: the computation of the stage.
    - ``links``: the rank's peers, and what goes over each link. Peers with a lower number call this rank.
    - ``rendezvous``: how they find each other.
    - ``epoch_ns``: the CLOCK_MONOTONIC time that is 0 in the span log.
    - ``parent_pid``: the process that started this rank. The rank is killed when it ends. None for no such tie.
    - ``serving``: the prefill that the GPU runs while training leaves it idle. It is replayed, or computed by torch if
      training is.
    - ``overlap``: whether the rank computes while it sends; if not, it starts nothing until a message has left.
    - ``kept``: the files that the rank writes of the model. Only for a back end that trains.
    - ``start_gate``: the folder of ``wanbed.workloads.start_gate``, where the rank waits for all others before it
      begins.

    Raises ValueError naming the field.
    """

    rank: int
    host: str
    datacenter: str
    gpu: int
    pipeline: int
    stage: int
    shape: PipelineShape
    iterations: int
    schedule: str
    compute: ComputeConfig
    links: LinksConfig
    rendezvous: RendezvousConfig
    span_log: str
    epoch_ns: int
    schedule_options: dict[str, Any] = field(default_factory=dict)
    parent_pid: int | None = None
    serving: GpuServingConfig | None = None
    start_gate: str | None = None
    overlap: bool = True
    kept: KeptFilesConfig = field(default_factory=KeptFilesConfig)

    def __post_init__(self) -> None:
        for name, least in (
            ("rank", 0),
            ("gpu", 0),
            ("pipeline", 0),
            ("iterations", 1),
        ):
            if getattr(self, name) < least:
                raise ValueError(f"{name}: {getattr(self, name)} is below {least}")
        if not 0 <= self.stage < self.shape.stages:
            raise ValueError(f"stage: {self.stage} is none of the {self.shape.stages} stages")
        self._check_links()
        self._check_compute()

    def _check_links(self) -> None:
        links, last, divided = self.links, self.shape.stages - 1, self.shape.virtual_stages > 1
        for name in ("rank", "pipeline", "stage", "iterations"):
            if getattr(links, name) != getattr(self, name):
                raise ValueError(f"links.{name}: {getattr(links, name)}, where the rank's is {getattr(self, name)}")
        if links.first_iteration >= self.iterations:
            raise ValueError(f"links.first_iteration: {links.first_iteration}, of {self.iterations} iterations")
        if links.microbatches != self.shape.microbatches:
            raise ValueError(f"links.microbatches: {links.microbatches}, where the shape has {self.shape.microbatches}")
        for name, boundary, expected in (
            ("previous", links.previous, self.stage > 0 and not divided),
            ("following", links.following, self.stage < last and not divided),
        ):
            if (boundary is not None) != expected:
                raise ValueError(
                    f"links.{name}: stage {self.stage} of {self.shape.stages} has {'one' if expected else 'none'}"
                )
        if links.exchanges and not divided:
            raise ValueError("links.exchanges: stages that are not divided have boundaries")

    def _check_compute(self) -> None:
        try:
            backend = load_backend(self.compute.backend)
        except ValueError as fault:
            raise ValueError(f"compute.backend: {fault}") from None
        if self.serving is not None and (self.serving.inference is not None) != backend.computes_prefill:
            raise ValueError("serving.inference: torch computes training and prefill of a GPU, or neither")
        if self.compute.collective is not None and (self.links.rings or not backend.sums_on_device):
            raise ValueError(
                "compute.collective: torch sums what torch has computed, and in place of the ring: give one of both"
            )
        self._check_synchronization(backend)
        if self.links.buckets and not backend.completes_buckets:
            raise ValueError(f"links.buckets: {backend.title} completes none before its end, give 0")
        chunks = self.shape.virtual_stages
        if len(self.compute.chunks) != (chunks if chunks > 1 else 0):
            raise ValueError(f"compute.chunks: {len(self.compute.chunks)}, where the shape has {chunks} virtual stages")
        virtual = self.compute.computed.virtual
        if (virtual is None) != (chunks == 1):
            raise ValueError(f"compute.computed.virtual: {virtual}, where the shape has {chunks} virtual stages")
        if chunks > 1 and not backend.virtual_stages:
            raise ValueError(f"shape.virtual_stages: {backend.title} computes none")
        if self.kept.checkpoints is not None and not backend.saves_state:
            raise ValueError(f"kept.checkpoints: {backend.title} saves no state, leave them out")
        if self.kept.snapshots is not None and not backend.trains:
            raise ValueError(f"kept.snapshots: {backend.title} learns no weights, leave them out")
        if self.kept.gradients is not None and not backend.trains:
            raise ValueError(f"kept.gradients: {backend.title} makes none, leave the file out")
        recompute_ns, recomputes = self.compute.costs.durations.recompute_ns, self.shape.recomputes(self.stage)
        if recomputes != (recompute_ns > 0):
            raise ValueError(
                f"compute.costs.durations.recompute_ns: {recompute_ns}, where the shape says that stage {self.stage} "
                f"{'recomputes' if recomputes else 'does not recompute'}"
            )

    def _check_synchronization(self, backend: type[ComputeBackend]) -> None:
        synchronizes = self.links.synchronizations is not None or self.links.star is not None
        if (self.compute.synchronization is not None) != synchronizes:
            raise ValueError(
                "links.synchronizations: give them with compute.synchronization, or links.star, or neither"
            )
        learning = self.compute.learning
        if learning is not None and learning.swapping is not None and not (backend.swaps and synchronizes):
            raise ValueError(f"compute.learning.swapping: {backend.title} does not swap, or sums gradients: give none")
        if synchronizes and not backend.synchronizes:
            raise ValueError(f"compute.synchronization: {backend.title} sums gradients only, leave it out")

    def write(self, path: Path) -> None:
        """Write the configuration as JSON, readable only by this user because of the token."""
        write_config(self, path)


def read_rank_config(path: Path) -> RankConfig:
    """Read a file of ``RankConfig.write``. Raise ValueError, one line with path and field; OSError if unreadable."""
    return read_config(RankConfig, path)

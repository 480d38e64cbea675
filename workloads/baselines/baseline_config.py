"""The configuration of one rank of a torch baseline, as a JSON file."""

from dataclasses import dataclass, field
from pathlib import Path

from wanbed.ground.dataclass_json import read_config
from wanbed.workloads.compute.device_settings import DeviceSettings
from wanbed.workloads.gpt.learning_config import LearningConfig
from wanbed.workloads.kept_files import KeptFilesConfig
from wanbed.workloads.placed_config import PlacedConfig

TORCH_GPIPE, TORCH_1F1B, TORCH_ZB, TORCH_DDP = BASELINE_SCHEDULES = (
    "torch-gpipe",
    "torch-1f1b",
    "torch-zb",
    "torch-ddp",
)

_DEFAULT_TIMEOUT_NS = 600_000_000_000
DEFAULT_RENDEZVOUS_TIMEOUT_NS = 60_000_000_000
DEFAULT_SILENCE_NS = 8_000_000_000


@dataclass(frozen=True)
class BaselineShape:
    """A schedule of torch's, and the pipelines that it runs.

    - ``schedule``: one of ``BASELINE_SCHEDULES``. ``torch-ddp`` has one stage.
    - ``microbatches``: those of each pipeline in an iteration.

    Raises ValueError naming the field if torch's schedule does not support the shape.
    """

    schedule: str
    stages: int
    pipelines: int
    microbatches: int

    def __post_init__(self) -> None:
        _check_least(self, 1, "stages", "pipelines", "microbatches")
        if self.schedule not in BASELINE_SCHEDULES:
            raise ValueError(f"schedule: {self.schedule!r} is none of {', '.join(BASELINE_SCHEDULES)}")
        stages, microbatches = self.stages, self.microbatches
        if self.schedule == TORCH_DDP:
            if stages != 1:
                raise ValueError(f"stages: torch-ddp trains whole replicas: 1 stage, not {stages}")
        elif stages == 1:
            raise ValueError(f"stages: {self.schedule} needs 2 stages or more")
        if self.schedule == TORCH_1F1B and microbatches < stages:
            raise ValueError(
                f"microbatches: {microbatches}, where torch-1f1b needs one for each of the {stages} stages"
            )
        if self.schedule == TORCH_ZB and microbatches % (rounds := max(1, microbatches // stages)):
            raise ValueError(
                f"microbatches: {microbatches}, where torch-zb runs {rounds} rounds on {stages} stages and needs a "
                f"multiple of {rounds}"
            )

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return self.pipelines * self.stages


@dataclass(frozen=True)
class GlooConfig:
    """How a rank finds the others, and how Gloo connects them. Durations are on the testbed's clock.

    - ``interface``: the network interface that Gloo uses. It must have the address ``listen_address``.
    - ``store_address``, ``store_port``: where rank 0 serves the rendezvous store. The address is its own listen
      address; the port is below the kernel's ephemeral range.
    - ``timeout_ns``: the limit of each single transfer, however slow the network.
    - ``rendezvous_timeout_ns``: the limit of the rendezvous, from the rank's start, importing torch included.
    - ``silence_ns``: a rank without a heartbeat for so long is lost.

    Raises ValueError naming the field.
    """

    listen_address: str
    interface: str
    store_address: str
    store_port: int
    timeout_ns: int = _DEFAULT_TIMEOUT_NS
    rendezvous_timeout_ns: int = DEFAULT_RENDEZVOUS_TIMEOUT_NS
    silence_ns: int = DEFAULT_SILENCE_NS

    def __post_init__(self) -> None:
        _check_least(self, 1, "timeout_ns", "rendezvous_timeout_ns", "silence_ns")
        if not 1 <= self.store_port <= 65535:
            raise ValueError(f"store_port: {self.store_port} is no port")


@dataclass(frozen=True)
class BaselineConfig(PlacedConfig):
    """One rank of one trial that torch trains.

    - ``place``: that of the rank ``pipeline * stages + stage``.
    - ``iterations``: includes those of the warm-up.
    - ``epoch_ns``: the CLOCK_MONOTONIC time that is 0 in the span log.
    - ``kept``: the files that the rank writes of the model: no checkpoints.
    - ``parent_pid``: the process that started this rank. The rank is killed when it ends. None for no such tie.

    Raises ValueError naming the field.
    """

    shape: BaselineShape
    iterations: int
    learning: LearningConfig
    gloo: GlooConfig
    span_log: str
    epoch_ns: int
    device: DeviceSettings = field(default_factory=lambda: DeviceSettings("cpu"))
    kept: KeptFilesConfig = field(default_factory=KeptFilesConfig)
    parent_pid: int | None = None

    def __post_init__(self) -> None:
        place, shape, gloo = self.place, self.shape, self.gloo
        _check_least(self, 1, "iterations")
        for name, count in (("stage", shape.stages), ("pipeline", shape.pipelines)):
            if not 0 <= (number := getattr(place, name)) < count:
                raise ValueError(f"place.{name}: {number} is none of the {count} {name}s")
        if place.rank != (expected := place.pipeline * shape.stages + place.stage):
            raise ValueError(
                f"place.rank: {place.rank}, where stage {place.stage} of pipeline {place.pipeline} is rank {expected}"
            )
        if place.rank == 0 and gloo.store_address != gloo.listen_address:
            raise ValueError(f"gloo.store_address: rank 0 serves the store at its own address, {gloo.listen_address}")
        if self.kept.checkpoints is not None:
            raise ValueError("kept.checkpoints: torch's schedules write none, leave them out")
        self.learning.model.layers_of(place.stage, shape.stages)


def _check_least(config: object, least: int, *names: str) -> None:
    for name in names:
        if getattr(config, name) < least:
            raise ValueError(f"{name}: {getattr(config, name)} is below {least}")


def read_baseline_config(path: Path) -> BaselineConfig:
    """Read a file of ``BaselineConfig.write``. Raise ValueError with path and field, OSError if it is unreadable."""
    return read_config(BaselineConfig, path)

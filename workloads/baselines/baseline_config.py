"""The configuration of one rank of a torch baseline, as a JSON file."""

from dataclasses import dataclass
from pathlib import Path

from wanbed.ground.dataclass_json import read_config, write_config
from wanbed.workloads.compute.device_settings import DEVICES
from wanbed.workloads.gpt.gpt_config import GptConfig, bytes_per_element
from wanbed.workloads.gpt.learnt_text import HeldOut
from wanbed.workloads.kept_files import SnapshotConfig

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
class BaselineConfig:
    """One rank of one trial that torch trains. Durations are on the testbed's clock.

    - ``rank``: ``pipeline * stages + stage``, of ``pipelines * stages`` ranks in all.
    - ``iterations``: includes those of the warm-up.
    - ``schedule``: one of ``BASELINE_SCHEDULES``. ``torch-ddp`` has one stage.
    - ``interface``: the network interface that Gloo uses. It must have the address ``listen_address``.
    - ``rendezvous_address``, ``rendezvous_port``: where rank 0 serves the rendezvous store. The address is its own
      listen address; the port is below the kernel's ephemeral range.
    - ``epoch_ns``: the CLOCK_MONOTONIC time that is 0 in the span log.
    - ``text``: the corpus or file that tokens are read from, None for synthetic tokens.
    - ``held_out``: what is not learnt from, None for nothing.
    - ``snapshots``: the weights that the rank keeps for an evaluation, None for none.
    - ``gradients``: the ``.npz`` file for the gradients of the last iteration, None for no file.
    - ``timeout_ns``: the limit of each single transfer, however slow the network.
    - ``rendezvous_timeout_ns``: the limit of the rendezvous, from the rank's start, importing torch included.
    - ``deterministic``: use only kernels that give the same bits in every run.
    - ``silence_ns``: a rank without a heartbeat for so long is lost.
    - ``parent_pid``: the process that started this rank. The rank is killed when it ends. None for no such tie.
    - ``threads``: the number of threads that torch computes with.
    - ``device``: the device that torch computes on, cpu or cuda.

    Raises ValueError naming the field.
    """

    rank: int
    host: str
    datacenter: str
    gpu: int
    pipeline: int
    stage: int
    stages: int
    pipelines: int
    microbatches: int
    iterations: int
    schedule: str
    config: GptConfig
    precision: str
    seed: int
    learning_rate: float
    listen_address: str
    interface: str
    rendezvous_address: str
    rendezvous_port: int
    span_log: str
    epoch_ns: int
    text: str | None = None
    gradients: str | None = None
    timeout_ns: int = _DEFAULT_TIMEOUT_NS
    rendezvous_timeout_ns: int = DEFAULT_RENDEZVOUS_TIMEOUT_NS
    deterministic: bool = False
    silence_ns: int = DEFAULT_SILENCE_NS
    parent_pid: int | None = None
    threads: int = 1
    device: str = "cpu"
    held_out: HeldOut | None = None
    snapshots: SnapshotConfig | None = None

    def __post_init__(self) -> None:
        for name in ("stages", "pipelines", "microbatches", "iterations", "threads"):
            self._at_least(name, 1)
        for name in ("rank", "gpu", "pipeline", "stage", "seed"):
            self._at_least(name, 0)
        for name in ("timeout_ns", "rendezvous_timeout_ns", "silence_ns"):
            self._at_least(name, 1)
        if self.schedule not in BASELINE_SCHEDULES:
            raise ValueError(f"schedule: {self.schedule!r} is none of {', '.join(BASELINE_SCHEDULES)}")
        bytes_per_element(self.precision)
        if self.device not in DEVICES:
            raise ValueError(f"device: {self.device!r} is none of {', '.join(DEVICES)}")
        if self.stage >= self.stages:
            raise ValueError(f"stage: {self.stage} is none of the {self.stages} stages")
        if self.pipeline >= self.pipelines:
            raise ValueError(f"pipeline: {self.pipeline} is none of the {self.pipelines} pipelines")
        if self.rank != (expected := self.pipeline * self.stages + self.stage):
            raise ValueError(
                f"rank: {self.rank}, where stage {self.stage} of pipeline {self.pipeline} is rank {expected}"
            )
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate: {self.learning_rate} is not above 0")
        if not 1 <= self.rendezvous_port <= 65535:
            raise ValueError(f"rendezvous_port: {self.rendezvous_port} is no port")
        if self.rank == 0 and self.rendezvous_address != self.listen_address:
            raise ValueError(f"rendezvous_address: rank 0 serves the store at its own address, {self.listen_address}")
        self.config.layers_of(self.stage, self.stages)
        check_baseline_shape(self.schedule, self.stages, self.microbatches)

    @property
    def world_size(self) -> int:
        """The number of ranks."""
        return self.pipelines * self.stages

    def _at_least(self, name: str, least: int) -> None:
        if getattr(self, name) < least:
            raise ValueError(f"{name}: {getattr(self, name)} is below {least}")

    def write(self, path: Path) -> None:
        """Write the configuration as JSON."""
        write_config(self, path)


def check_baseline_shape(schedule: str, stages: int, microbatches: int) -> None:
    """Raise ValueError naming the field if torch's schedule of that name does not support the shape."""
    if schedule == TORCH_DDP:
        if stages != 1:
            raise ValueError(f"stages: torch-ddp trains whole replicas: 1 stage, not {stages}")
    elif stages == 1:
        raise ValueError(f"stages: {schedule} needs 2 stages or more")
    if schedule == TORCH_1F1B and microbatches < stages:
        raise ValueError(f"microbatches: {microbatches}, where torch-1f1b needs one for each of the {stages} stages")
    if schedule == TORCH_ZB and microbatches % (rounds := max(1, microbatches // stages)):
        raise ValueError(
            f"microbatches: {microbatches}, where torch-zb runs {rounds} rounds on {stages} stages and needs a "
            f"multiple of {rounds}"
        )


def read_baseline_config(path: Path) -> BaselineConfig:
    """Read a file of ``BaselineConfig.write``. Raise ValueError with path and field, OSError if it is unreadable."""
    return read_config(BaselineConfig, path)

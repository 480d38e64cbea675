"""The plan of one rank of a torch peer, as a file."""

from dataclasses import dataclass
from pathlib import Path

from workloads.model.gpt_config import GptConfig, bytes_per_element
from workloads.plan_file import read_plan, write_plan

TORCH_GPIPE, TORCH_1F1B, TORCH_ZB, TORCH_DDP = BASELINE_SCHEDULES = (
    "torch-gpipe",
    "torch-1f1b",
    "torch-zb",
    "torch-ddp",
)

DEFAULT_TIMEOUT_NS = 600_000_000_000
DEFAULT_RENDEZVOUS_TIMEOUT_NS = 60_000_000_000
DEFAULT_SILENCE_NS = 8_000_000_000


@dataclass(frozen=True)
class BaselineConfig:
    """One rank of one trial whose training torch runs. Durations are those of the testbed's clock.

    ``rank`` is ``pipeline * stages + stage``; the whole world is ``pipelines * stages`` ranks. ``iterations`` counts
    the warm-up ones too. ``schedule`` is one of ``BASELINE_SCHEDULES``; ``torch-ddp`` has one stage. ``text`` is the
    file that tokens come from, None for synthetic ones. ``interface`` is the network interface Gloo uses, which must
    bear ``listen_address``. Rank 0 keeps the rendezvous store at ``rendezvous_address``, which is its own listen
    address, and ``rendezvous_port``, below the kernel's ephemeral range; the other ranks call it there.

    Ranks must have met within ``rendezvous_timeout_ns`` of their start, which imports torch. A rank that has not been
    heard of for ``silence_ns`` is lost. ``timeout_ns`` bounds each single transfer, however slow the network.

    ``gradients`` names the ``.npz`` file for the gradients of the last iteration, None if nobody wants them.
    ``epoch_ns`` is the CLOCK_MONOTONIC time that is 0 in the span log. With ``parent_pid`` the rank dies with that
    process, which must have started it. ``threads`` are those torch computes with. Raises ValueError naming the field.
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
    timeout_ns: int = DEFAULT_TIMEOUT_NS
    rendezvous_timeout_ns: int = DEFAULT_RENDEZVOUS_TIMEOUT_NS
    silence_ns: int = DEFAULT_SILENCE_NS
    parent_pid: int | None = None
    threads: int = 1

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
            raise ValueError(f"rendezvous_address: rank 0 keeps the store at its own address, {self.listen_address}")
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
        """Write the plan as JSON."""
        write_plan(self, path)


def check_baseline_shape(schedule: str, stages: int, microbatches: int) -> None:
    """Raise ValueError, naming the field, if torch's schedule of that name would refuse the shape."""
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
    """Read what ``BaselineConfig.write`` wrote. Raises ValueError with path and field, OSError if unreadable."""
    return read_plan(BaselineConfig, path)

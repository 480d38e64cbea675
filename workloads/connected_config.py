"""The configuration that every rank has which is connected to others, as a JSON file."""

from dataclasses import dataclass
from pathlib import Path

from wanbed.results.records.span_log import Span
from wanbed.workloads.host_process import die_with_parent, wake_precisely
from wanbed.workloads.placed_config import PlacedConfig
from wanbed.workloads.start_gate import wait_at_gate
from wanbed.workloads.transport.links_config import LinksConfig, RendezvousConfig


@dataclass(frozen=True)
class RankProcessConfig:
    """The process of a rank.

    - ``span_log``: the file of its spans.
    - ``epoch_ns``: the CLOCK_MONOTONIC time that is 0 in the span log.
    - ``parent_pid``: the process that started this rank. The rank is killed when it ends. None for no such tie.
    - ``start_gate``: the folder of ``wanbed.workloads.start_gate``, where the rank waits for all others before it
      begins. None where it waits for nobody.
    """

    span_log: str
    epoch_ns: int
    parent_pid: int | None = None
    start_gate: str | None = None

    def prepare(self) -> None:
        """Tie this process to its parent, and let its thread wake precisely."""
        if self.parent_pid is not None:
            die_with_parent(self.parent_pid)
        wake_precisely()

    def await_all(self) -> None:
        """Wait until all ranks can begin."""
        if self.start_gate is not None:
            wait_at_gate(Path(self.start_gate))

    def since_epoch(self, span: Span) -> Span:
        """Return a span of CLOCK_MONOTONIC with the times of the log."""
        return span._replace(start_ns=span.start_ns - self.epoch_ns, end_ns=span.end_ns - self.epoch_ns)


@dataclass(frozen=True, kw_only=True)
class ConnectedConfig(PlacedConfig):
    """One rank of one trial: where it stands, and whom it sends to. Durations are on the testbed's clock.

    - ``iterations``: includes those of the warm-up.
    - ``links``: the rank's peers, and what goes over each link. Peers with a lower number call this rank.
    - ``rendezvous``: how they find each other.

    Raises ValueError naming the field.
    """

    process: RankProcessConfig
    iterations: int
    links: LinksConfig
    rendezvous: RendezvousConfig

    def __post_init__(self) -> None:
        for name in ("rank", "gpu", "pipeline"):
            if (number := getattr(self.place, name)) < 0:
                raise ValueError(f"place.{name}: {number} is below 0")
        if self.iterations < 1:
            raise ValueError(f"iterations: {self.iterations} is below 1")
        for name in ("rank", "pipeline", "stage"):
            linked, placed = getattr(self.links, name), getattr(self.place, name)
            if linked != placed:
                raise ValueError(f"links.{name}: {linked}, where the rank's is {placed}")

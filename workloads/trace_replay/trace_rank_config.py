"""The configuration of one rank that replays a trace, as a JSON file."""

from dataclasses import dataclass
from pathlib import Path

from wanbed.ground.dataclass_json import read_config, write_config
from wanbed.workloads.trace_replay.replayed_trace import TraceNode, WorkKind
from wanbed.workloads.transport.links_config import LinksConfig, RendezvousConfig


@dataclass(frozen=True)
class TraceRankConfig:
    """One rank of one trial. Durations are on the testbed's clock (dilated if the run is).

    ``nodes`` is the rank's part of the trace, replayed in each of ``iterations``. ``links.iterations`` counts the
    collectives of a group, which are as many in every iteration, and so is no less. The other fields are those of
    ``wanbed.workloads.rank_config.RankConfig``. Raises ValueError naming the field.
    """

    rank: int
    host: str
    datacenter: str
    gpu: int
    nodes: tuple[TraceNode, ...]
    iterations: int
    links: LinksConfig
    rendezvous: RendezvousConfig
    span_log: str
    epoch_ns: int
    parent_pid: int | None = None
    start_gate: str | None = None

    def __post_init__(self) -> None:
        for name, least in (("rank", 0), ("gpu", 0), ("iterations", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}: {getattr(self, name)} is below {least}")
        if self.links.rank != self.rank:
            raise ValueError(f"links.rank: {self.links.rank}, where the rank's is {self.rank}")
        if self.links.iterations < self.iterations * max(self.collectives, 1):
            raise ValueError(f"links.iterations: {self.links.iterations}, fewer than there are collectives")
        for position, node in enumerate(self.nodes):
            if any(not 0 <= earlier < position for earlier in node.after):
                raise ValueError(f"nodes.{position}.after: {node.after} are not all nodes before it")
        if len({node.group for node in self.nodes if node.kind is WorkKind.COLLECTIVE}) > 1:
            raise ValueError("nodes: a rank has collectives in one group only")

    @property
    def collectives(self) -> int:
        """The number of collectives in an iteration."""
        return sum(node.kind is WorkKind.COLLECTIVE for node in self.nodes)

    def write(self, path: Path) -> None:
        """Write the configuration as JSON, readable only by this user because of the token."""
        write_config(self, path)


def read_trace_rank_config(path: Path) -> TraceRankConfig:
    """Read a file of ``TraceRankConfig.write``. Raise ValueError, one line with path and field; OSError."""
    return read_config(TraceRankConfig, path)

"""The configuration of one rank that replays a trace, as a JSON file."""

from dataclasses import dataclass

from wanbed.workloads.connected_config import ConnectedConfig
from wanbed.workloads.trace_replay.replayed_trace import TraceNode, WorkKind


@dataclass(frozen=True, kw_only=True)
class TraceRankConfig(ConnectedConfig):
    """One rank that replays its part of a trace.

    ``nodes`` is the rank's part of the trace, replayed in each of ``iterations``. ``links.iterations`` counts the
    collectives of a group, which are as many in every iteration, and so is no less. Raises ValueError naming the field.
    """

    nodes: tuple[TraceNode, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.links.iterations < self.iterations * max(self.collectives, 1):
            raise ValueError(f"links.iterations: {self.links.iterations}, fewer than there are collectives")
        for position, node in enumerate(self.nodes):
            if any(not 0 <= earlier < position for earlier in node.after):
                raise ValueError(f"nodes.{position}.after: {node.after} are not all nodes before it")
        if self.collectives and not self.links.rings.replicas:
            raise ValueError("links.rings: a rank with collectives is in the ring of its group")
        if len({node.group for node in self.nodes if node.kind is WorkKind.COLLECTIVE}) > 1:
            raise ValueError("nodes: a rank has collectives in one group only")

    @property
    def collectives(self) -> int:
        """The number of collectives in an iteration."""
        return sum(node.kind is WorkKind.COLLECTIVE for node in self.nodes)

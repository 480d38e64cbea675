"""Check the nodes of a Chakra trace one by one."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from heapq import heappop, heappush

from wanbed.ground.shown_text import shown
from wanbed.ground.units import MAX_DURATION_NS, MAX_SIZE_BYTES, format_duration, format_size
from wanbed.results.chakra.node import (
    DURATION_NS,
    INVOLVED_DIMENSIONS,
    KIND,
    MICROBATCH,
    ChakraNode,
    CollectiveType,
    NodeType,
)
from wanbed.results.records.span_log import ACTIVATION, COMPUTE_KINDS, GRADIENT, NO_MICROBATCH
from wanbed.runner.trainings.trace.resolution.chakra_folder import RankFile
from wanbed.workloads.trace.replayed_trace import WorkKind
from wanbed.workloads.trace.ring_collective import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER

_KINDS = {
    NodeType.METADATA_NODE: WorkKind.NOTHING,
    NodeType.COMP_NODE: WorkKind.GPU,
    NodeType.COMM_SEND_NODE: WorkKind.SEND,
    NodeType.COMM_RECV_NODE: WorkKind.RECEIVE,
    NodeType.COMM_COLL_NODE: WorkKind.COLLECTIVE,
}
_UNNAMED_COMPUTATION = "forward"
"""The kind of span of a computation whose name says none."""
_COLLECTIVES = {
    CollectiveType.ALL_REDUCE: ALL_REDUCE,
    CollectiveType.ALL_GATHER: ALL_GATHER,
    CollectiveType.REDUCE_SCATTER: REDUCE_SCATTER,
    CollectiveType.REDUCE_SCATTER_BLOCK: REDUCE_SCATTER,
}
_REPLAYED = "computations, sends, receives, all-reduces, all-gathers and reduce-scatters are"


@dataclass
class CheckedNode:
    """A node of one rank that can be replayed. ``peer``, ``number`` and ``group`` are as in ``TraceNode``."""

    node: ChakraNode
    kind: WorkKind
    duration_ns: int = 0
    collective: str = ""
    size_bytes: int = 0
    peer: int = -1
    tag: int = 0
    group_name: str | None = None
    group: int = -1
    number: int = -1
    after: set[int] = field(default_factory=set)
    """Positions in the rank's list, all lower than the node's own."""

    @property
    def span(self) -> str:
        """The kind of the span of a computation or a collective."""
        if self.kind is WorkKind.COLLECTIVE:
            return self.collective
        for kind in (self.node.attributes.get(KIND), self.node.name.split(" ")[0]):
            if kind in COMPUTE_KINDS:
                return str(kind)
        return _UNNAMED_COMPUTATION

    @property
    def tensor(self) -> str:
        """The tensor that a message carries in a trace by wanbed, by the name of its node; "" in other traces."""
        kind, _, carried = self.node.name.partition(" ")
        named = carried.split(" ")[0]
        return named if self.node.attributes.get(KIND) == kind and named in {ACTIVATION, GRADIENT} else ""

    @property
    def microbatch(self) -> int:
        """The microbatch of a computation, if the trace says it."""
        microbatch = self.node.attributes.get(MICROBATCH)
        return microbatch if type(microbatch) is int and 0 <= microbatch < 2**31 else NO_MICROBATCH


def checked_nodes(file: RankFile, rank: int, ranks: int) -> list[CheckedNode]:
    """Return the nodes of one of ``ranks`` ranks, each after those that it depends on, otherwise by their ids.

    Raise InputError, one line with file and node, for one that cannot be replayed.
    """
    nodes = {node.id: node for node in file.nodes}
    if len(nodes) < len(file.nodes):
        counted = Counter(node.id for node in file.nodes)
        raise file.fault(next(node for node in file.nodes if counted[node.id] > 1), "another node has this id")
    followers: dict[int, list[int]] = defaultdict(list)
    awaited: dict[int, int] = {}
    for node in file.nodes:
        for earlier in node.dependencies:
            if earlier not in nodes:
                raise file.fault(node, f"it depends on node {earlier}, which the file does not have")
            followers[earlier].append(node.id)
        awaited[node.id] = len(node.dependencies)
    positions: dict[int, int] = {}
    checked: list[CheckedNode] = []
    ready = sorted(identifier for identifier, count in awaited.items() if not count)
    while ready:
        identifier = heappop(ready)
        able = _checked(file, nodes[identifier], rank, ranks)
        able.after = {positions[earlier] for earlier in nodes[identifier].dependencies}
        positions[identifier] = len(checked)
        checked.append(able)
        for follower in followers[identifier]:
            awaited[follower] -= 1
            if not awaited[follower]:
                heappush(ready, follower)
    if len(checked) < len(nodes):
        stuck = min(identifier for identifier in nodes if identifier not in positions)
        raise file.fault(nodes[stuck], "it depends on itself, or on a node that does, through other nodes")
    return checked


def _checked(file: RankFile, node: ChakraNode, rank: int, ranks: int) -> CheckedNode:
    kind = next((kind for each, kind in _KINDS.items() if each == node.type), None)
    if kind is None:
        known = next((each.name for each in NodeType if each == node.type), f"{node.type}, which is unknown,")
        raise file.fault(node, f"type {known} is not replayed: {_REPLAYED}")
    checked = CheckedNode(node, kind)
    match kind:
        case WorkKind.GPU:
            checked.duration_ns = _duration_ns(file, node)
            if not checked.duration_ns and node.attributes.get("num_ops", 0):
                raise file.fault(
                    node,
                    f"it has {shown(node.attributes['num_ops'])} operations and no duration_micros: give durations, no "
                    "processor is modelled that would say them",
                )
            of_cpu = node.attributes.get("is_cpu_op", False)
            if not isinstance(of_cpu, bool):
                raise file.fault(node, f"its is_cpu_op is {shown(of_cpu)}: give true or false")
            if of_cpu:
                checked.kind = WorkKind.CPU
        case WorkKind.SEND | WorkKind.RECEIVE:
            checked.size_bytes = _size_bytes(file, node)
            own, other = ("comm_src", "comm_dst") if kind is WorkKind.SEND else ("comm_dst", "comm_src")
            if _whole(file, node, own, rank) != rank:
                raise file.fault(node, f"its {own} is {shown(node.attributes[own])} in the file of rank {rank}")
            checked.peer = _whole(file, node, other)
            if not 0 <= checked.peer < ranks or checked.peer == rank:
                raise file.fault(node, f"its {other} is {checked.peer}, which is no other of the {ranks} ranks")
            checked.tag = _whole(file, node, "comm_tag", 0)
        case WorkKind.COLLECTIVE:
            comm_type = _whole(file, node, "comm_type")
            collective = next((kind for each, kind in _COLLECTIVES.items() if each == comm_type), None)
            if collective is None:
                known = next((each.name for each in CollectiveType if each == comm_type), str(comm_type))
                raise file.fault(
                    node,
                    f"type COLL {known} is not replayed: {_REPLAYED}: write it as sends and receives, or leave it out",
                )
            checked.collective = collective
            if node.attributes.get(INVOLVED_DIMENSIONS, True) is not True:
                raise file.fault(node, "its involved_dim leaves dimensions out: give the ranks of its group by pg_name")
            checked.size_bytes = _size_bytes(file, node)
            checked.group_name = str(node.attributes.get("pg_name", ""))
    return checked


def _whole(file: RankFile, node: ChakraNode, name: str, default: int | None = None) -> int:
    """Return an attribute that is a whole number. Raise InputError if it is missing, or another value."""
    value = node.attributes.get(name, default)
    if value is None:
        raise file.fault(node, f"it has no attribute {name}")
    if type(value) is not int:
        raise file.fault(node, f"its {name} is {shown(value)}: give a whole number")
    return value


def _duration_ns(file: RankFile, node: ChakraNode) -> int:
    """Return the exact duration if it is given and rounds to the whole microseconds, else these."""
    duration_ns = node.duration_us * 1000
    exact_ns = node.attributes.get(DURATION_NS)
    if type(exact_ns) is int and exact_ns >= 0 and abs(exact_ns - duration_ns) <= 1000:
        duration_ns = exact_ns
    if duration_ns > MAX_DURATION_NS:
        raise file.fault(
            node, f"its duration_micros is {node.duration_us}: {format_duration(MAX_DURATION_NS)} is the longest"
        )
    return duration_ns


def _size_bytes(file: RankFile, node: ChakraNode) -> int:
    size_bytes = _whole(file, node, "comm_size")
    if not 1 <= size_bytes <= MAX_SIZE_BYTES:
        raise file.fault(node, f"its comm_size is {size_bytes}: give 1 to {format_size(MAX_SIZE_BYTES)}")
    return size_bytes

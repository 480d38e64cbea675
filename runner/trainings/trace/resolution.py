"""Resolve a variant that replays a folder of Chakra execution traces, one file for each rank.

The name of a group is text that each rank's file gives it. A trace says the ranks themselves in two ways: the name
lists them, like ``0,2``; or, in what torch records, a metadata node lists all groups of a rank with their ranks. The
ranks of each group have the same collectives, in the same order, and each send has its receive.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from hashlib import sha256
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

from wanbed.ground.errors import InputError, prefixed, shown
from wanbed.ground.exclusions import Exclusion, check_exclusions
from wanbed.ground.files import read_bounded
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
from wanbed.results.text import kind_text
from wanbed.runner.experiment.quantities import AUTO
from wanbed.runner.resolve.all_reduce_check import check_all_reduce
from wanbed.runner.resolve.placement import ConfiguredPlacement, Pair, Placement, place_ranks, place_stages, ring_order
from wanbed.runner.resolve.resolved_variant import ResolvedVariant, Transfer
from wanbed.runner.resolve.stage_costs import StageCosts
from wanbed.runner.resolve.stage_rings import ring_pairs
from wanbed.runner.resolve.trial_extent import check_trace_extent
from wanbed.runner.resolve.written_variant import WrittenVariant
from wanbed.workloads.trace_replay.replayed_trace import (
    ALL_GATHER,
    ALL_REDUCE,
    REDUCE_SCATTER,
    RankGraph,
    RankProgress,
    ReplayedTrace,
    TraceNode,
    WorkKind,
)


@dataclass(frozen=True, kw_only=True)
class TraceVariant(ResolvedVariant):
    """A variant whose ranks replay ``trace``. Each rank is a stage of the only pipeline."""

    trace: ReplayedTrace

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """The pairs of ranks that send to each other, and of neighbours in a group's ring."""
        rank = self.placement.rank
        of_rings = {(rank(one), rank(other)) for ring in self.rings for one, other in ring}
        return self._pairs_of(self.trace.pairs | of_rings)

    @cached_property
    def rings(self) -> tuple[tuple[Pair, ...], ...]:
        """Each place with the next one of its ring, for every group that has collectives."""
        rings = (ring_order([self.placement.places[rank] for rank in group]) for group in self.trace.groups)
        return tuple(ring_pairs(ring) for ring in rings)

    def transfers(self) -> Iterator[Transfer]:
        """Yield each message of the trace, and the segments of each ring."""
        places, trace = self.placement.places, self.trace
        for rank, nodes in enumerate(trace.ranks):
            for node in nodes:
                if node.kind is WorkKind.SEND:
                    yield Transfer("a message", node.size_bytes, (places[rank], places[node.peer]))
                elif node.kind is WorkKind.COLLECTIVE and rank == trace.groups[node.group][0]:
                    ring, collective = self.rings[node.group], trace.collective(node)
                    what = f"a segment of a ring's {kind_text(collective.kind)}"
                    for pair in ring:
                        yield Transfer(what, collective.whole_bytes // len(ring), pair)

    def serial_s(self, transfer_s: Callable[[int], float]) -> float:
        """Return an upper bound of an iteration in seconds, as ``ResolvedVariant.serial_s`` says."""
        trace = self.trace
        computing_s = sum(trace.computing_ns(rank) for rank in range(len(trace.ranks))) / 1e9
        nodes = [node for own in trace.ranks for node in own]
        messages_s = sum(transfer_s(node.size_bytes) for node in nodes if node.kind is WorkKind.SEND)
        collectives = [trace.collective(node) for node in nodes if node.kind is WorkKind.COLLECTIVE]
        rings_s = sum(2 * transfer_s(each.whole_bytes) for each in collectives)
        return computing_s + messages_s + len(trace.ranks) * rings_s

    def document(self) -> Mapping[str, Any]:
        """Return what the experiment file leaves open, as resolved, in plain JSON types."""
        return {
            "placement": self._places_document(),
            "microbatches": 1,
            "pipelines_per_cell": 1,
            "work": _work(self.trace).document(),
            "trace": self.trace.digest,
        }


def _work(trace: ReplayedTrace) -> StageCosts:
    """Return stage costs that say how long each rank computes, as one forward that sends nothing."""
    ranks = len(trace.ranks)
    none = (0,) * ranks
    computing_ns = tuple(trace.computing_ns(rank) for rank in range(ranks))
    return StageCosts(computing_ns, none, none, none, none, none, none[1:], none)


_CUT = Exclusion(
    tuple(
        f"training.{name}"
        for name in ("stages", "pipelines", "microbatches", "memory_bound", "memory", "virtual_stages")
    ),
    "the trace has its own ranks and work",
)
_INCOMPATIBLE_SECTIONS = (
    Exclusion("model", "the trace has its own"),
    Exclusion("prefill", "nothing prefills beside a replayed trace"),
    _CUT,
)
_INCOMPATIBLE = (
    _CUT,
    Exclusion("options", "a trace takes none"),
    Exclusion("transport.sharing", "each message of a trace goes over the connections of its own two hosts"),
    Exclusion(
        ("transport.overlap", "transport.held_until", "transport.receive"),
        "the trace has its own order of computations and messages",
    ),
    Exclusion("transport.activation", "the trace has its own messages and their sizes"),
    Exclusion("transport.piece", "the trace's all-reduces are not those of gradients"),
    Exclusion("transport.all_reduce_overlap", "the trace has its own all-reduces, which overlap as it says"),
)
"""The fields that a variant with a trace does not have: the trace has its own, or is not replayed with them."""


def resolve(written: WrittenVariant) -> TraceVariant:
    """Return the variant, resolved. Raise InputError if the trace cannot be replayed, or not with this variant."""
    check_exclusions(*_INCOMPATIBLE_SECTIONS, of=written.spec)
    check_exclusions(*_INCOMPATIBLE, of=written.variant, where=f"{written.field}.")
    assert written.spec.compute.trace is not None
    with prefixed("compute.trace: "):
        trace = replayed_trace(written.directory / written.spec.compute.trace)
    placement = _placement(written, len(trace.ranks))
    check_all_reduce(written, placement)
    resolved = TraceVariant(spec=written.variant, placement=placement, trace=trace, seed=written.spec.seed)
    check_trace_extent(written, trace, placement.places, resolved.rings)
    return resolved


def _placement(written: WrittenVariant, ranks: int) -> Placement:
    configured: ConfiguredPlacement | None = written.variant.placement
    if configured == AUTO:
        raise InputError(
            f"{written.field}.placement: auto: the planner places stages of a schedule: name the datacenter of each "
            "rank"
        )
    if configured is None:
        return place_ranks(written.topology, ranks, "compute.trace")
    if len(configured) != ranks or not all(isinstance(name, str) for name in configured):
        raise InputError(
            f"{written.field}.placement: {shown(list(configured))} for {ranks} ranks: name one datacenter for each"
        )
    with prefixed(f"{written.field}."):
        return place_stages(written.topology, ranks, 1, configured)


MAX_BYTES = 2**30
"""The most bytes of all files together. A node takes some tens, and a hundred times as much in memory."""

_FILE = re.compile(r"(?P<name>.+)\.(?P<rank>[0-9]{1,6})\.et")

_VERSION = re.compile(r"(0|1)\.[0-9]+\.[0-9]+.*|")
"""Versions 0.x and 1.x are alike in what is read here. The converter of PyTorch's traces writes none."""


@dataclass(frozen=True)
class _RankFile:
    """The file of one rank and its nodes, in the file's order."""

    path: Path
    nodes: tuple[ChakraNode, ...]

    def fault(self, node: ChakraNode, fault: str) -> InputError:
        """Return the error for a node of this file."""
        return InputError(f"{self.path}: node {node.id} {shown(node.name)}: {fault}")


@dataclass(frozen=True)
class _FolderContents:
    """The files of a folder, by rank. Contents with the same digest are equal."""

    digest: str
    paths: tuple[Path, ...] = field(compare=False)
    contents: tuple[bytes, ...] = field(compare=False)

    def rank_files(self) -> tuple[_RankFile, ...]:
        """Return the files with their nodes, by rank. Raise InputError, one line with the file, for what is none."""
        files = zip(self.paths, self.contents, strict=True)
        return tuple(_RankFile(path, _nodes(path, content)) for path, content in files)


def _read_folder(folder: Path) -> _FolderContents:
    """Read the files ``NAME.RANK.et`` of a folder. Raise InputError, one line, if there is none for every rank."""
    paths = _files(folder)
    contents: list[bytes] = []
    left_bytes = MAX_BYTES
    for path in paths:
        try:
            contents.append(read_bounded(path, left_bytes))
        except OSError as fault:
            raise InputError(f"{path}: cannot be read ({fault.strerror})") from None
        left_bytes -= len(contents[-1])
        if left_bytes < 0:
            raise InputError(f"{folder}: its files have more than {MAX_BYTES >> 30} GiB: cut the trace")
    digest = sha256(b"".join(sha256(content).digest() for content in contents)).hexdigest()
    return _FolderContents(digest, tuple(paths), tuple(contents))


def _files(folder: Path) -> list[Path]:
    """Return the file of each rank, by rank."""
    where = str(folder)
    if not folder.is_dir():
        raise InputError(f"{where}: is no folder: give the folder of a Chakra trace, with a file NAME.RANK.et a rank")
    found: dict[int, Path] = {}
    names: set[str] = set()
    for path in sorted(folder.glob("*.et")):
        fits = _FILE.fullmatch(path.name)
        if fits is None:
            raise InputError(f"{path}: its name has no rank: name the files NAME.RANK.et")
        names.add(fits["name"])
        if len(names) > 1:
            raise InputError(f"{where}: has traces of two names, {' and '.join(map(shown, sorted(names)))}: keep one")
        if int(fits["rank"]) in found:
            raise InputError(f"{path}: rank {int(fits['rank'])} has another file: keep one")
        found[int(fits["rank"])] = path
    if not found:
        raise InputError(f"{where}: has no file NAME.RANK.et: give the folder of a Chakra trace")
    missing = next((rank for rank in range(max(found)) if rank not in found), None)
    if missing is not None:
        raise InputError(f"{where}: has no file for rank {missing}, and one for rank {max(found)}: give all ranks")
    return [found[rank] for rank in sorted(found)]


def _nodes(path: Path, content: bytes) -> tuple[ChakraNode, ...]:
    # protobuf comes with it, and few experiments replay a trace.
    from wanbed.results.chakra.rank_file import ChakraFileError, read_rank  # noqa: PLC0415

    try:
        version, nodes = read_rank(content)
    except ChakraFileError as fault:
        raise InputError(f"{path}: {fault}") from None
    if _VERSION.fullmatch(version) is None:
        raise InputError(f"{path}: version {shown(version)} of the format is not read, 0.x and 1.x are")
    return tuple(nodes)


_LISTED = re.compile(r"\[?\s*\d{1,6}(\s*,\s*\d{1,6})+\s*\]?")

_GROUPS_NODE = "process_group:init"

_JSON_LIST = re.compile(r"\[\s*\{.*\}\s*\]", re.DOTALL)


@dataclass(frozen=True)
class _RankGroup:
    """A group of ranks. ``ranks`` is None if the trace does not say which; then those have it whose files name it.

    ``name`` is empty where ranks give the group different names, and for the group of all ranks.
    """

    name: str
    ranks: tuple[int, ...] | None


class _GroupRanks:
    """The groups of ranks that the files of all ranks define."""

    def __init__(self, files: tuple[_RankFile, ...]) -> None:
        self._everybody = tuple(range(len(files)))
        self._stated = [_stated(file, self._everybody) for file in files]

    def group(self, rank: int, name: str) -> _RankGroup:
        """Return the group that a rank calls by that name."""
        if not name:
            return _RankGroup("", self._everybody)
        stated = self._stated[rank].get(name)
        if stated is not None:
            known = [each for each in stated if each in self._everybody]
            alike = all(self._stated[each].get(name) == stated for each in known)
            return _RankGroup(name if alike else "", stated)
        if _LISTED.fullmatch(name):
            return _RankGroup(name, tuple(sorted({int(each) for each in re.findall(r"\d+", name)})))
        return _RankGroup(name, None)


def _stated(file: _RankFile, everybody: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Return the ranks of each group that the metadata of a file lists; an empty list stands for all ranks."""
    found: dict[str, tuple[int, ...]] = {}
    for node in file.nodes:
        listed = _JSON_LIST.search(node.input_values.replace('\\"', '"')) if _GROUPS_NODE in node.name else None
        try:
            groups = [] if listed is None else json.loads(listed[0])
        except ValueError:
            continue
        for group in groups:
            if isinstance(group, dict) and isinstance(group.get("ranks"), list):
                ranks = [each for each in group["ranks"] if type(each) is int]
                found[str(group.get("pg_name", ""))] = tuple(sorted({*ranks})) or everybody
    return found


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
class _CheckedNode:
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


def _checked_nodes(file: _RankFile, rank: int, ranks: int) -> list[_CheckedNode]:
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
    checked: list[_CheckedNode] = []
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


def _checked(file: _RankFile, node: ChakraNode, rank: int, ranks: int) -> _CheckedNode:
    kind = next((kind for each, kind in _KINDS.items() if each == node.type), None)
    if kind is None:
        known = next((each.name for each in NodeType if each == node.type), f"{node.type}, which is unknown,")
        raise file.fault(node, f"type {known} is not replayed: {_REPLAYED}")
    checked = _CheckedNode(node, kind)
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


def _whole(file: _RankFile, node: ChakraNode, name: str, default: int | None = None) -> int:
    """Return an attribute that is a whole number. Raise InputError if it is missing, or another value."""
    value = node.attributes.get(name, default)
    if value is None:
        raise file.fault(node, f"it has no attribute {name}")
    if type(value) is not int:
        raise file.fault(node, f"its {name} is {shown(value)}: give a whole number")
    return value


def _duration_ns(file: _RankFile, node: ChakraNode) -> int:
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


def _size_bytes(file: _RankFile, node: ChakraNode) -> int:
    size_bytes = _whole(file, node, "comm_size")
    if not 1 <= size_bytes <= MAX_SIZE_BYTES:
        raise file.fault(node, f"its comm_size is {size_bytes}: give 1 to {format_size(MAX_SIZE_BYTES)}")
    return size_bytes


_Members = dict[int, list[_CheckedNode]]
"""The collectives of a group at each of its ranks."""


def _match_collectives(files: tuple[_RankFile, ...], ranks: list[list[_CheckedNode]]) -> tuple[tuple[int, ...], ...]:
    """Give the groups that have collectives their numbers, and return the ranks of each.

    Each rank of a group has the same collectives. Those of a single rank become nothing. Raise InputError where the
    ranks of a group differ, or where it is not known which they are.
    """
    groups_of = _GroupRanks(files)
    members: dict[_RankGroup, _Members] = defaultdict(lambda: defaultdict(list))
    for rank, nodes in enumerate(ranks):
        for node in nodes:
            if node.group_name is not None:
                members[groups_of.group(rank, node.group_name)][rank].append(node)
    _check_lone(files, members)
    groups: list[tuple[int, ...]] = []
    for group, by_rank in members.items():
        own = tuple(sorted(by_rank)) if group.ranks is None else group.ranks
        _check_ranks(files, own, by_rank)
        first = min(by_rank)
        for rank in own:
            _check_same(files, group, (first, by_rank[first]), (rank, by_rank.get(rank, [])))
        for nodes in by_rank.values():
            for number, node in enumerate(nodes):
                node.number, node.group = number, len(groups)
                if len(own) == 1:
                    node.kind, node.group = WorkKind.NOTHING, -1
        if len(own) > 1:
            groups.append(own)
    for nodes in ranks:
        last: dict[int, int] = {}
        for position, node in enumerate(nodes):
            if node.kind is WorkKind.COLLECTIVE:
                # A group's collectives follow one another on every rank.
                node.after |= {last[node.group]} if node.group in last else set()
                last[node.group] = position
    return tuple(groups)


def _check_lone(files: tuple[_RankFile, ...], members: dict[_RankGroup, _Members]) -> None:
    """Raise InputError for two groups of a single rank that do the same: they may be one group under two names."""
    lone: dict[tuple[tuple[str, int], ...], tuple[int, _CheckedNode]] = {}
    for group, by_rank in members.items():
        if group.ranks is not None or len(by_rank) > 1:
            continue
        ((rank, nodes),) = by_rank.items()
        other, its_node = lone.setdefault(tuple((node.collective, node.size_bytes) for node in nodes), (rank, nodes[0]))
        if other != rank:
            raise files[rank].fault(
                nodes[0].node,
                f"only rank {rank} names the group {shown(group.name)}, and rank {other} does the same in "
                f"{shown(its_node.group_name or '')}: give one group one pg_name, or its ranks as name, like "
                f"'{other},{rank}'",
            )


def _check_ranks(files: tuple[_RankFile, ...], own: tuple[int, ...], by_rank: _Members) -> None:
    """Raise InputError for a group that has ranks without a file, or lacks the rank that names it."""
    for rank, nodes in by_rank.items():
        absent = next((each for each in own if each >= len(files)), None)
        if absent is not None:
            raise files[rank].fault(nodes[0].node, f"its group has rank {absent}, and there are {len(files)} ranks")
        if rank not in own:
            named = ", ".join(map(str, own))
            raise files[rank].fault(nodes[0].node, f"its group has the ranks {named}, and this is rank {rank}")


def _check_same(
    files: tuple[_RankFile, ...],
    group: _RankGroup,
    reference: tuple[int, list[_CheckedNode]],
    own: tuple[int, list[_CheckedNode]],
) -> None:
    (first, expected), (rank, nodes) = reference, own
    if len(nodes) != len(expected):
        last = max((first, expected), (rank, nodes), key=lambda each: len(each[1]))
        raise files[last[0]].fault(
            last[1][-1].node,
            f"rank {first} has {len(expected)} collectives of {_title(files, group)}, and rank {rank} has {len(nodes)}",
        )
    for node, other in zip(nodes, expected, strict=True):
        if node.collective != other.collective:
            raise files[rank].fault(
                node.node,
                f"its comm_type is {kind_text(node.collective)}, and rank {first} has {kind_text(other.collective)} in "
                f"its place, node {other.node.id}",
            )
        if node.size_bytes != other.size_bytes:
            raise files[rank].fault(
                node.node,
                f"its comm_size is {node.size_bytes}, and rank {first} gives {other.size_bytes} to the same "
                f"{kind_text(other.collective)}, node {other.node.id}",
            )


def _title(files: tuple[_RankFile, ...], group: _RankGroup) -> str:
    if group.ranks is not None and len(group.ranks) == len(files):
        return "all ranks"
    return f"group {shown(group.name or ','.join(map(str, group.ranks or ())))}"


def _match_messages(files: tuple[_RankFile, ...], ranks: list[list[_CheckedNode]]) -> None:
    """Give the messages of each pair of ranks their numbers.

    The k-th send with a tag belongs to the k-th receive with it. Raise InputError for one without its other half.
    """
    sends: dict[tuple[int, int, int, int], tuple[int, _CheckedNode]] = {}
    sent: Counter[Any] = Counter()
    for rank, nodes in enumerate(ranks):
        for node in nodes:
            if node.kind is WorkKind.SEND:
                node.number, ends = sent[rank, node.peer], (rank, node.peer, node.tag)
                sends[*ends, sent[ends]] = (rank, node)
                sent[rank, node.peer] += 1
                sent[ends] += 1
    received: Counter[tuple[int, int, int]] = Counter()
    for rank, nodes in enumerate(ranks):
        for node in nodes:
            if node.kind is WorkKind.RECEIVE:
                ends = (node.peer, rank, node.tag)
                _, send = sends.pop((*ends, received[ends]), (0, None))
                received[ends] += 1
                if send is None:
                    raise files[rank].fault(node.node, f"rank {node.peer} sends nothing to it with tag {node.tag}")
                if send.size_bytes != node.size_bytes:
                    raise files[rank].fault(
                        node.node,
                        f"its comm_size is {node.size_bytes}, and node {send.node.id} of rank {node.peer} sends it "
                        f"{send.size_bytes}",
                    )
                node.number = send.number
    for rank, send in sends.values():
        raise files[rank].fault(send.node, f"rank {send.peer} receives nothing from it with tag {send.tag}")


_KEPT = 4
"""Traces that are kept, so that the sweep points and variants of an experiment share one."""


def replayed_trace(folder: Path) -> ReplayedTrace:
    """Return the trace in that folder. Raise InputError, one line with file and node, if it cannot be replayed."""
    return _replayed(_read_folder(folder))


@lru_cache(maxsize=_KEPT)
def _replayed(contents: _FolderContents) -> ReplayedTrace:
    files = contents.rank_files()
    ranks = [_checked_nodes(file, rank, len(files)) for rank, file in enumerate(files)]
    _match_messages(files, ranks)
    groups = _match_collectives(files, ranks)
    trace = ReplayedTrace(tuple(tuple(map(_replayed_node, nodes)) for nodes in ranks), groups, contents.digest)
    computes = any(node.kind is WorkKind.GPU and node.duration_ns for nodes in ranks for node in nodes)
    if not computes and not groups and not trace.pairs:
        raise InputError(
            f"{files[0].path}: no rank computes on its GPU for any time, sends, or has a collective with others: there "
            "is nothing to measure"
        )
    _check_ends(files, ranks, trace)
    return trace


def _replayed_node(node: _CheckedNode) -> TraceNode:
    in_spans = node.kind in {WorkKind.GPU, WorkKind.COLLECTIVE}
    return TraceNode(
        kind=node.kind,
        after=tuple(sorted(node.after)),
        duration_ns=node.duration_ns,
        span=node.span if in_spans else "",
        microbatch=node.microbatch,
        peer=node.peer,
        number=node.number,
        group=node.group,
        size_bytes=node.size_bytes,
        tensor=node.tensor if node.kind in {WorkKind.SEND, WorkKind.RECEIVE} else "",
    )


def _check_ends(files: tuple[_RankFile, ...], ranks: list[list[_CheckedNode]], trace: ReplayedTrace) -> None:
    """Raise InputError for ranks that would wait for each other for ever: a circle of messages and collectives."""
    progress = [RankProgress(RankGraph(nodes)) for nodes in trace.ranks]
    joined: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    active = list(range(len(progress)))
    while active:
        rank = active.pop()
        own = progress[rank]
        for kind in (WorkKind.GPU, WorkKind.CPU, WorkKind.SEND, WorkKind.COLLECTIVE):
            while (position := own.next_of(kind)) is not None:
                node = trace.ranks[rank][position]
                ended = [(rank, position)]
                if kind is WorkKind.SEND:
                    progress[node.peer].arrived(rank, node.number)
                    active.append(node.peer)
                elif kind is WorkKind.COLLECTIVE:
                    members = joined[node.group, node.number]
                    members.append((rank, position))
                    ended = members if len(members) == len(trace.groups[node.group]) else []
                for other, its_position in ended:
                    progress[other].ended(its_position)
                    active.append(other)
    for rank, own in enumerate(progress):
        if not own.complete:
            waiting = own.first_waiting
            raise files[rank].fault(
                ranks[rank][waiting].node,
                "it waits for ever: messages and collectives of several ranks wait for each other in a circle",
            )

"""Make a replayed trace of a folder of Chakra execution traces, checked as a whole."""

from collections import defaultdict
from functools import lru_cache
from pathlib import Path

from wanbed.ground.strict_model import InputError
from wanbed.runner.trainings.trace.resolution.chakra_folder import FolderContents, RankFile, read_folder
from wanbed.runner.trainings.trace.resolution.collectives import match_collectives
from wanbed.runner.trainings.trace.resolution.messages import match_messages
from wanbed.runner.trainings.trace.resolution.trace_nodes import CheckedNode, checked_nodes
from wanbed.workloads.trace.rank_progress import RankGraph, RankProgress
from wanbed.workloads.trace.replayed_trace import ReplayedTrace, TraceNode, WorkKind

_KEPT = 4
"""Traces that are kept, so that the sweep points and variants of an experiment share one."""


def replayed_trace(folder: Path) -> ReplayedTrace:
    """Return the trace in that folder. Raise InputError, one line with file and node, if it cannot be replayed."""
    return _replayed(read_folder(folder))


@lru_cache(maxsize=_KEPT)
def _replayed(contents: FolderContents) -> ReplayedTrace:
    files = contents.rank_files()
    ranks = [checked_nodes(file, rank, len(files)) for rank, file in enumerate(files)]
    match_messages(files, ranks)
    groups = match_collectives(files, ranks)
    trace = ReplayedTrace(tuple(tuple(map(_replayed_node, nodes)) for nodes in ranks), groups, contents.digest)
    computes = any(node.kind is WorkKind.GPU and node.duration_ns for nodes in ranks for node in nodes)
    if not computes and not groups and not trace.pairs:
        raise InputError(
            f"{files[0].path}: no rank computes on its GPU for any time, sends, or has a collective with others: there "
            "is nothing to measure"
        )
    _check_ends(files, ranks, trace)
    return trace


def _replayed_node(node: CheckedNode) -> TraceNode:
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


def _check_ends(files: tuple[RankFile, ...], ranks: list[list[CheckedNode]], trace: ReplayedTrace) -> None:
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

"""Match the collectives of a Chakra trace: the ranks of each group do the same ones, in the same order."""

from collections import defaultdict

from wanbed.ground.shown_text import shown
from wanbed.results.text import kind_text
from wanbed.runner.trainings.trace.resolution.chakra_folder import RankFile
from wanbed.runner.trainings.trace.resolution.group_ranks import GroupRanks, RankGroup
from wanbed.runner.trainings.trace.resolution.trace_nodes import CheckedNode
from wanbed.workloads.trace.replayed_trace import WorkKind

_Members = dict[int, list[CheckedNode]]
"""The collectives of a group at each of its ranks."""


def match_collectives(files: tuple[RankFile, ...], ranks: list[list[CheckedNode]]) -> tuple[tuple[int, ...], ...]:
    """Give the groups that have collectives their numbers, and return the ranks of each.

    Each rank of a group has the same collectives. Those of a single rank become nothing. Raise InputError where the
    ranks of a group differ, or where it is not known which they are.
    """
    groups_of = GroupRanks(files)
    members: dict[RankGroup, _Members] = defaultdict(lambda: defaultdict(list))
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


def _check_lone(files: tuple[RankFile, ...], members: dict[RankGroup, _Members]) -> None:
    """Raise InputError for two groups of a single rank that do the same: they may be one group under two names."""
    lone: dict[tuple[tuple[str, int], ...], tuple[int, CheckedNode]] = {}
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


def _check_ranks(files: tuple[RankFile, ...], own: tuple[int, ...], by_rank: _Members) -> None:
    """Raise InputError for a group that has ranks without a file, or lacks the rank that names it."""
    for rank, nodes in by_rank.items():
        absent = next((each for each in own if each >= len(files)), None)
        if absent is not None:
            raise files[rank].fault(nodes[0].node, f"its group has rank {absent}, and there are {len(files)} ranks")
        if rank not in own:
            named = ", ".join(map(str, own))
            raise files[rank].fault(nodes[0].node, f"its group has the ranks {named}, and this is rank {rank}")


def _check_same(
    files: tuple[RankFile, ...],
    group: RankGroup,
    reference: tuple[int, list[CheckedNode]],
    own: tuple[int, list[CheckedNode]],
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


def _title(files: tuple[RankFile, ...], group: RankGroup) -> str:
    if group.ranks is not None and len(group.ranks) == len(files):
        return "all ranks"
    return f"group {shown(group.name or ','.join(map(str, group.ranks or ())))}"

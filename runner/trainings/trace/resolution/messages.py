"""Match the messages of a Chakra trace: each send with its receive."""

from collections import Counter
from typing import Any

from wanbed.runner.trainings.trace.resolution.chakra_folder import RankFile
from wanbed.runner.trainings.trace.resolution.trace_nodes import CheckedNode
from wanbed.workloads.trace.replayed_trace import WorkKind


def match_messages(files: tuple[RankFile, ...], ranks: list[list[CheckedNode]]) -> None:
    """Give the messages of each pair of ranks their numbers.

    The k-th send with a tag belongs to the k-th receive with it. Raise InputError for one without its other half.
    """
    sends: dict[tuple[int, int, int, int], tuple[int, CheckedNode]] = {}
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

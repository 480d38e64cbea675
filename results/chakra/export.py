"""Write one iteration of one trial as a Chakra execution trace: a folder with one file for each rank."""

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from wanbed.ground.files.atomic_write import written_whole
from wanbed.ground.strict_model import InputError
from wanbed.results.chakra.node import NodeType
from wanbed.results.chakra.rank_file import rank_bytes
from wanbed.results.chakra.trial_nodes import trial_nodes
from wanbed.results.chakra.trial_spans import chosen_iteration
from wanbed.results.reading.selection import Selection

SUFFIX = "et"

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True)
class ChakraCounts:
    """The trial's variant, the iteration, the datacenter of each rank, and the numbers of nodes in all files."""

    variant: str
    iteration: int
    placement: tuple[str, ...]
    computations: int
    sends: int
    receives: int
    collectives: int


def write_chakra_trace(run: Path, folder: Path, selection: Selection) -> ChakraCounts:
    """Write ``NAME.RANK.et`` for every rank into ``folder``, which is created and must not hold other traces.

    NAME is the variant's. Raises what ``chosen_iteration`` raises, and InputError for a folder with
    files of another trace.
    """
    chosen = chosen_iteration(run, selection)
    ranks = trial_nodes(chosen)
    name = _NOT_IN_NAMES.sub("-", chosen.trial.variant).strip("-") or "trace"
    wanted = {f"{name}.{rank}.{SUFFIX}" for rank in ranks}
    folder.mkdir(parents=True, exist_ok=True)
    for other in sorted(folder.glob(f"*.{SUFFIX}")):
        if other.name not in wanted:
            raise InputError(f"{folder}: has {other.name} of another trace: give another --output")
    for rank, nodes in ranks.items():
        with written_whole(folder / f"{name}.{rank}.{SUFFIX}") as partial:
            partial.write_bytes(rank_bytes(nodes))
    homes = {span.rank: span.datacenter for span in chosen.spans}
    types = Counter(node.type for nodes in ranks.values() for node in nodes)
    return ChakraCounts(
        chosen.trial.variant,
        chosen.iteration,
        tuple(homes[rank] for rank in ranks),
        types[NodeType.COMP_NODE],
        types[NodeType.COMM_SEND_NODE],
        types[NodeType.COMM_RECV_NODE],
        types[NodeType.COMM_COLL_NODE],
    )

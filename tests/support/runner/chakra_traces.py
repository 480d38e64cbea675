"""Simulated iterations as Chakra traces, and hand-made traces, in folders."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from wanbed.results.chakra.export import EXPORTED_KINDS, TrialIteration, TrialSpan, trial_nodes
from wanbed.results.chakra.node import ChakraNode, CollectiveType, NodeType
from wanbed.results.chakra.rank_file import rank_bytes
from wanbed.results.reading.stored_trial import StoredTrial
from wanbed.results.records.span_log import RankPlace
from wanbed.results.records.trial_columns import TrialSpans
from wanbed.results.records.trial_id import TrialId
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.simulator.simulation import Simulation

TRIAL = TrialId(0, "v", 0)


def spans_of(variant: ResolvedVariant, simulation: Simulation, iteration: int) -> list[TrialSpan]:
    """Return the spans of one iteration as the exporter reads them from a run."""
    owners = [
        RankPlace(rank, place.host.name, place.datacenter, place.gpu, place.pipeline, place.stage)
        for rank, place in enumerate(variant.placement.places)
    ]
    rows = [row for table in TrialSpans(owners, simulation.spans).tables(TRIAL) for row in table.to_pylist()]
    names = TrialSpan.__dataclass_fields__
    return sorted(
        TrialSpan(**{name: row[name] for name in names})
        for row in rows
        if row["iteration"] == iteration and row["kind"] in EXPORTED_KINDS
    )


def nodes_of(variant: ResolvedVariant, simulation: Simulation, iteration: int) -> dict[int, list[ChakraNode]]:
    """Return the nodes of one simulated iteration."""
    spans = spans_of(variant, simulation, iteration)
    return trial_nodes(TrialIteration(StoredTrial(TRIAL, Path(), {}, {}), iteration, tuple(spans)))


def write_trace(folder: Path, ranks: Mapping[int, Iterable[ChakraNode]]) -> Path:
    """Write the files of a trace, and return their folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank, nodes in ranks.items():
        (folder / f"t.{rank}.et").write_bytes(rank_bytes(nodes))
    return folder


def replay_document(
    document: Mapping[str, Any], variant: ResolvedVariant, folder: Path, iterations: int
) -> dict[str, Any]:
    """Return an experiment that replays the trace over the topology of ``document``, each rank where it was."""
    (written,) = document["variants"]
    return {
        **{name: document[name] for name in ("topology", "engine") if name in document},
        "compute": {"trace": str(folder)},
        "training": {"iterations": iterations, "warmup": 0},
        "variants": [
            {
                "name": "replay",
                "transport": written.get("transport", {}),
                "placement": [place.datacenter for place in variant.placement.places],
            }
        ],
    }


def computation(identifier: int, duration_us: int, after: Sequence[int] = (), **attributes: Any) -> ChakraNode:
    """Return a computation on the GPU."""
    return ChakraNode(
        identifier, f"work {identifier}", NodeType.COMP_NODE, tuple(after), (), 0, duration_us, attributes
    )


def message(
    kind: NodeType, identifier: int, ends: tuple[int, int], size_bytes: int, after: Sequence[int] = (), *, tag: int = 0
) -> ChakraNode:
    """Return a send or a receive of a message between two ranks."""
    attributes: dict[str, Any] = {"comm_size": size_bytes, "comm_src": ends[0], "comm_dst": ends[1], "comm_tag": tag}
    return ChakraNode(identifier, f"{kind.name} {identifier}", kind, tuple(after), attributes=attributes)


def all_reduce(
    identifier: int,
    size_bytes: int,
    after: Sequence[int] = (),
    group: str = "",
    kind: CollectiveType = CollectiveType.ALL_REDUCE,
) -> ChakraNode:
    """Return an all-reduce of all ranks, or of a group's; or a collective of another kind."""
    attributes: dict[str, Any] = {"comm_type": int(kind), "comm_size": size_bytes}
    attributes |= {"pg_name": group} if group else {}
    return ChakraNode(identifier, f"sum {identifier}", NodeType.COMM_COLL_NODE, tuple(after), attributes=attributes)

"""Report variants whose ``connections: auto`` is limited to ``MAX_CONNECTIONS`` between two hosts."""

from collections.abc import Iterable, Mapping
from typing import Any

from wanbed.results.text import count_text, percent_text
from wanbed.runner.experiment.quantities import MAX_CONNECTIONS
from wanbed.runner.resolve.connections import CutPair, cut_pairs
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.trainings.program.resolution.program_variant import ProgramVariant
from wanbed.testbed.network.topology import Topology


def cuts_of(topology: Topology, variant: ResolvedVariant) -> tuple[CutPair, ...]:
    """Return the node pairs of a variant whose connections are limited below what would fill them."""
    if isinstance(variant, ProgramVariant):
        return ()
    return cut_pairs(topology, variant.pairs, variant.transport)


def cut_facts(topology: Topology, variant: ResolvedVariant) -> dict[str, Any]:
    """Return the limited node pairs as an entry of a trial's facts; {} if there are none."""
    cuts = [[*cut.hosts, cut.wanted, round(cut.carried, 4)] for cut in cuts_of(topology, variant)]
    return {"connections_cut": cuts} if cuts else {}


def cut_lines(points: Iterable[SweepPoint]) -> list[str]:
    """Return a line for each variant with limited connections, with its worst node pair over all sweep points."""
    found: dict[str, list[tuple[CutPair, Mapping[str, str]]]] = {}
    for point in points:
        for variant in point.variants:
            for cut in cuts_of(point.topology, variant):
                found.setdefault(variant.name, []).append((cut, point.values))
    return [cut_line(name, cuts) for name, cuts in found.items()]


def cut_line(variant: str, cuts: list[tuple[CutPair, Mapping[str, str]]]) -> str:
    """Return the line that reports the limited node pairs of one variant, each given with its swept values."""
    worst, values = min(cuts, key=lambda cut: cut[0].carried)
    at = ", ".join(f"{path}={value}" for path, value in values.items())
    others = f" (and {count_text(len(cuts) - 1, 'more such case')})" if len(cuts) > 1 else ""
    return (
        f"{variant}: connections: auto stops at {MAX_CONNECTIONS} between {worst.hosts[0]} and {worst.hosts[1]}"
        f"{f' at {at}' if at else ''}{others}: {worst.wanted} would fill the node pair, {MAX_CONNECTIONS} carry "
        f"{percent_text(worst.carried)} of it at most; a larger window needs fewer"
    )

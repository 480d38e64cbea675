"""Say before a run begins what may surprise in its figures, wherever it runs."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from wanbed.ground.errors import InputError
from wanbed.results.reading.not_modelled import not_modelled_text
from wanbed.results.text import count_text, percent_text
from wanbed.runner.experiment.quantities import MAX_CONNECTIONS
from wanbed.runner.resolve.connections import CutPair, cut_pairs
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.runs.not_modelled import planned_without
from wanbed.runner.trainings.program.resolution import ProgramVariant
from wanbed.testbed.network.topology import Topology


def log_caveats(points: Sequence[SweepPoint], *, keep_gradients: bool, log: Callable[[str], None]) -> None:
    """Log what may surprise in the figures of an emulation.

    Raise InputError if gradients are to be kept of a back end that makes none.
    """
    for line in caveat_lines(points):
        log(line)
    for backend in (point.spec.compute.backend for point in points if keep_gradients):
        if not backend.trains:
            raise InputError(f"--keep-gradients: {backend.title} makes none: give compute: {{kind: torch}}")
    if without := not_modelled_text(each for point in points for each in planned_without(point.spec, point.topology)):
        log(f"placement auto: the planner simulates, and does not model {without}")


def caveat_lines(points: Sequence[SweepPoint]) -> list[str]:
    """Return the lines that hold for an emulation and for a simulation."""
    return [*deterministic_profile_lines(points), *cut_lines(points), *cut_off_lines(points)]


def deterministic_profile_lines(points: Iterable[SweepPoint]) -> list[str]:
    """Return a line for each compute profile that was measured with deterministic kernels only."""
    names = dict.fromkeys(
        point.spec.compute.times_profile
        for point in points
        if point.profile_conditions is not None and point.profile_conditions.deterministic
    )
    return [
        f"compute.profile {name}: measured with deterministic kernels only, which are slower on a GPU than those with "
        "which models are trained in practice"
        for name in names
    ]


def cut_lines(points: Iterable[SweepPoint]) -> list[str]:
    """Return a line for each variant with limited connections, with its worst node pair over all sweep points."""
    found: dict[str, list[tuple[CutPair, Mapping[str, str]]]] = {}
    for point in points:
        for variant in point.variants:
            for cut in cuts_of(point.topology, variant):
                found.setdefault(variant.name, []).append((cut, point.values))
    return [cut_line(name, cuts) for name, cuts in found.items()]


def cuts_of(topology: Topology, variant: ResolvedVariant) -> tuple[CutPair, ...]:
    """Return the node pairs of a variant whose connections are limited below what would fill them."""
    if isinstance(variant, ProgramVariant):
        return ()
    return cut_pairs(topology, variant.pairs, variant.transport)


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


def cut_off_lines(points: Iterable[SweepPoint]) -> list[str]:
    """Return a line for each search that ended early."""
    lines = []
    for point in points:
        at = "".join(f"{path}={value}: " for path, value in point.values.items())
        for variant in point.variants:
            planned = variant.planned if isinstance(variant, PipelineVariant) else None
            if planned is not None and planned.cut_off is not None:
                lines.append(
                    f"{at}{variant.name}: placement auto: the search was cut off {planned.cut_off}, on any "
                    "machine alike: a better placement may exist (wanbed plan searches for longer)"
                )
    return lines

"""Count the bytes that a part's trials send over TCP: the cost of a run in virtual time, where compute is free."""

from collections.abc import Sequence
from dataclasses import dataclass

from wanbed.results.text import size_text, table_line
from wanbed.runner.resolve.experiment import Experiment
from wanbed.runner.resolve.pipeline_variant import PipelineVariant, in_pipelines


def iteration_bytes(variant: PipelineVariant) -> int:
    """Return the payload in bytes that one iteration of a variant sends over TCP, inside and between datacenters.

    The M microbatches of each pipeline cross each boundary twice, as activation and as gradient. On a boundary that is
    shared by a DP-cell of C pipelines, (C - 1)/C of a transfer is sent twice more: scattered to the cell mates and
    gathered from theirs. A ring over P replicas of A bytes sends 2 (P - 1) A in total. Prefill is not included.
    """
    cell = variant.pipelines_per_cell
    transfers = 0
    for boundary, size_bytes in enumerate(variant.work.activation_bytes):
        passed_on = 2 * (cell - 1) * size_bytes // cell if variant.shares(boundary) else 0
        crossing = sum(chain[boundary] != chain[boundary + 1] for chain in variant.chains)
        transfers += 2 * variant.microbatches * crossing * (size_bytes + passed_on)
    return transfers + 2 * (variant.pipelines - 1) * sum(variant.work.gradient_bytes)


@dataclass(frozen=True)
class Volume:
    """One experiment's trials, iterations (warm-up included) and bytes."""

    name: str
    trials: int
    iterations: int
    total_bytes: int

    @classmethod
    def of(cls, experiment: Experiment) -> "Volume":
        """Return the volume of a complete run of that experiment."""
        points = experiment.points()
        total_bytes = sum(
            experiment.repeats * point.spec.training.iterations * iteration_bytes(in_pipelines(variant))
            for point in points
            for variant in point.variants
        )
        iterations = sum(experiment.repeats * point.spec.training.iterations * len(point.variants) for point in points)
        return cls(experiment.name, len(experiment.trials()), iterations, total_bytes)


def volume_table(volumes: Sequence[Volume]) -> str:
    """Return the volumes as a Markdown table, with their sum."""
    together = Volume(
        "together",
        sum(each.trials for each in volumes),
        sum(each.iterations for each in volumes),
        sum(each.total_bytes for each in volumes),
    )
    lines = [table_line(["experiment", "trials", "iterations", "bytes over TCP"]), table_line(["---", *["---:"] * 3])]
    lines += [
        table_line([each.name, str(each.trials), str(each.iterations), size_text(each.total_bytes)])
        for each in (*volumes, together)
    ]
    return "\n".join(lines) + "\n"

"""Count the bytes that a part's trials send over TCP: the cost of a run in virtual time, where computation is free."""

from collections.abc import Sequence
from dataclasses import dataclass

from results.text.markdown_text import table_line
from results.text.number_text import size_text
from runner.resolve.experiment import Experiment
from runner.resolve.resolved_variant import ResolvedVariant


def iteration_bytes(variant: ResolvedVariant) -> int:
    """Return the payload that one iteration of a variant sends over TCP, inside datacenters and between them.

    M microbatches of each pipeline cross each boundary twice, as activation and as gradient. One that is shared by a
    cell of C pipelines goes (C - 1)/C of the way twice more, scattered to the mates and gathered from theirs. A ring
    over P replicas of A bytes sends 2 (P - 1) A in all. Requests that are prefilled beside training come on top.
    """
    cell = variant.pipelines_per_cell
    transfers = 0
    for boundary, size_bytes in enumerate(variant.work.activation_bytes):
        passed_on = 2 * (cell - 1) * size_bytes // cell if variant.shares(boundary) else 0
        transfers += 2 * variant.microbatches * variant.pipelines * (size_bytes + passed_on)
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
        """Return the volume of running that experiment."""
        cells = experiment.points()
        total_bytes = sum(
            experiment.repeats * cell.spec.training.iterations * iteration_bytes(variant)
            for cell in cells
            for variant in cell.variants
        )
        iterations = sum(experiment.repeats * cell.spec.training.iterations * len(cell.variants) for cell in cells)
        return cls(experiment.name, len(experiment.trials()), iterations, total_bytes)


def volume_table(volumes: Sequence[Volume]) -> str:
    """Return the volumes in Markdown, with their sum."""
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

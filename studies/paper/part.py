"""List the experiments of the reproduction, in the order of the report, and count the bytes that each sends.

Bytes over TCP are the cost of a run in virtual time, where compute is free.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from wanbed.ground.errors import InputError
from wanbed.results.text import size_text, table_line
from wanbed.runner.experiments.shipped_experiments import FOLDER as SHIPPED
from wanbed.runner.planner.experiment_file import load_experiment
from wanbed.runner.resolve.experiment import Experiment
from wanbed.runner.resolve.pipeline_variant import PipelineVariant, in_pipelines

FOLDER = SHIPPED / "paper"


@dataclass(frozen=True)
class PaperPart:
    """One experiment of the reproduction: its file's name without the suffix, and its title.

    ``charts`` names the charts of its report that the page shows. ``figures`` names those that are also written as
    files; hatched charts are not, because they take megabytes as PNG.
    """

    name: str
    title: str
    charts: tuple[str, ...]
    figures: tuple[str, ...]

    @property
    def file(self) -> Path:
        """The experiment file."""
        return FOLDER / f"{self.name}.yaml"

    def experiment(self, engine: str) -> Experiment:
        """Return the experiment with that engine. Raise InputError if its file is invalid."""
        return load_experiment(self.file, [f"engine={engine}"])


_TIME, _GPUS = "iteration-time", "gpu-time"

GOODPUT = "goodput"
"""The name of a chart that only the paper's report has."""

PARTS: tuple[PaperPart, ...] = (
    PaperPart("fig2-dp-latency", "Figure 2: data parallelism over the WAN", (_TIME,), (_TIME,)),
    PaperPart("fig3-pp-latency", "Figure 3: pipelines over one connection", (_TIME,), (_TIME,)),
    PaperPart("fig4-timeline", "Figure 4: Varuna's timeline at 40 ms", ("timeline",), ("timeline",)),
    PaperPart("fig5-tcp-bandwidth", "Figure 5: one TCP connection and many", (GOODPUT,), (GOODPUT,)),
    PaperPart("headline-gpt-a", "Headline, GPT-A", (_TIME, _GPUS), (_TIME,)),
    PaperPart("headline-gpt-a-fair", "Headline, GPT-A: tuned baselines at 40 ms", (_GPUS,), ()),
    PaperPart("headline-gpt-b", "Headline, GPT-B", (_TIME, _GPUS), (_TIME,)),
    PaperPart("headline-gpt-b-fair", "Headline, GPT-B: tuned baselines at 40 ms", (_GPUS,), ()),
    PaperPart("headline-deep", "Headline, GPT-A in 12 stages at 40 ms", (_GPUS,), ()),
    PaperPart("headline-bubbletea", "BubbleTea: prefill in the bubbles at 40 ms", (_GPUS,), (_GPUS,)),
)


def parts_named(names: Sequence[str]) -> tuple[PaperPart, ...]:
    """Return the parts with these names in the order of ``PARTS``; all parts if no name is given.

    Raise InputError for an unknown name.
    """
    known = {part.name: part for part in PARTS}
    for name in names:
        if name not in known:
            raise InputError(f"--only: {name!r} is no part of the paper: give one of {', '.join(known)}")
    return tuple(part for part in PARTS if not names or part.name in names)


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

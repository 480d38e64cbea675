"""List the experiments of the reproduction, in the order of the report."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from wanbed.ground.strict_model import InputError
from wanbed.runner.experiments.shipped_experiments import FOLDER as SHIPPED
from wanbed.runner.planner.experiment_file import load_experiment
from wanbed.runner.resolve.experiment import Experiment

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

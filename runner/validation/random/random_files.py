"""Write drawn experiments as files that a user can run like any other."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from wanbed.ground.files.atomic_write import write_whole, written_whole
from wanbed.ground.strict_model import InputError
from wanbed.runner.planner.experiment_file import load_experiment
from wanbed.runner.resolve.experiment import Experiment
from wanbed.runner.validation.random.random_experiments import draw_experiment

MOST_EXPERIMENTS = 1000
"""The most experiments of a run, because their numbers have three digits."""


@dataclass(frozen=True)
class DrawnExperiment:
    """One experiment of a seed, its number, and its file."""

    number: int
    file: Path
    experiment: Experiment

    @property
    def name(self) -> str:
        """The experiment's name."""
        return self.experiment.name

    @property
    def runs(self) -> Path:
        """The folder of its runs, beside the file. A separate folder makes it fast to find its latest run."""
        return self.file.with_suffix("")


def write_experiments(seed: int, count: int, folder: Path) -> list[DrawnExperiment]:
    """Draw the first ``count`` experiments of a seed into files in ``folder``, replacing files of the same name.

    Raise InputError if they cannot be written.
    """
    drawn = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(count):
            document = draw_experiment(seed, number)
            file = folder / f"{document['name']}.yaml"
            write_whole(file, _text(document))
            drawn.append(DrawnExperiment(number, file, load_experiment(file)))
    except OSError as fault:
        raise InputError(f"{folder}: cannot be written to ({fault.strerror}), give another folder") from None
    return drawn


def copy_experiments(drawn: Sequence[DrawnExperiment], names: Sequence[str], folder: Path) -> None:
    """Copy the files of the named experiments into ``folder``, and delete those of all other drawn experiments."""
    if not names and not folder.is_dir():
        return
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {each.file.name: each.file for each in drawn if each.name in names}
    for old in folder.glob("random-*.yaml"):
        if old.name not in wanted:
            old.unlink()
    for name, file in wanted.items():
        with written_whole(folder / name) as partial:
            partial.write_bytes(file.read_bytes())


def _text(document: dict[str, object]) -> str:
    comment = "# Drawn by wanbed validate --random. Hold one engine against the other by:\n"
    file = f"{document['name']}.yaml"
    comment += f"#   wanbed run {file} && wanbed simulate {file}\n"
    return comment + yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=120)

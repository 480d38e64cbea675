"""Run several experiments one after the other inside one guest, because booting it costs more than one experiment."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from wanbed.ground.errors import one_line
from wanbed.ground.files import write_whole
from wanbed.results.records.run_store import RunStore
from wanbed.runner.planner.experiment_file import load_experiment
from wanbed.runner.runs.environment import kernel_facts
from wanbed.runner.runs.faults import status_of

MODULE = "wanbed.runner.validation.random_batch"

FAILURE = "failure.txt"
"""The file in a run's folder with the reason why the run did not finish."""


@dataclass(frozen=True)
class Batch:
    """A batch of experiment files, each with the existing folder of its run."""

    runs: Sequence[tuple[str, str]]

    def to_json(self) -> str:
        """Return the batch as one argument of a command line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Batch":
        """Return the batch that ``to_json`` wrote."""
        written: dict[str, Any] = json.loads(text)
        return cls([(str(file), str(store)) for file, store in written["runs"]])


def run_batch(batch: Batch) -> None:
    """Run each experiment in turn. A failed one leaves its reason in its folder, and the others still run."""
    # Mininet comes with these.
    from wanbed.runner.emulation.emulation import run_trials  # noqa: PLC0415
    from wanbed.runner.emulation.one_machine import on_this_machine  # noqa: PLC0415

    def quiet(_: str) -> None:
        """Drop a line."""

    for file, folder in batch.runs:
        store = RunStore.open(Path(folder))
        store.update_manifest(kernel_facts())
        try:
            run_trials(load_experiment(Path(file)), store, network_of=on_this_machine("kernel", file, quiet), log=quiet)
        except Exception as fault:
            if status_of(fault) is None:
                raise
            write_whole(store.path / FAILURE, f"{one_line(str(fault))}\n")


if __name__ == "__main__":
    run_batch(Batch.from_json(sys.argv[1]))

"""Run the trials of ``wanbed run --clock virtual`` inside the virtual-time guest, into an existing run folder."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import typer

from ground.strict_model import InputError
from results.records.run_store import RunStore
from runner.cli.exit_status import one_line_errors
from runner.cli.outcome import log
from runner.emulation.network_choice import source_of
from runner.planner.experiment_file import load_experiment
from runner.runs.machine_facts import kernel_facts

MODULE = "runner.cli.runs.inner_run"


@dataclass(frozen=True)
class InnerRun:
    """The configuration of such a run: the experiment file, its overrides, and the run folder (``store``)."""

    file: str
    overrides: Sequence[str]
    store: str

    def to_json(self) -> str:
        """Return the configuration as one argument of a command line."""
        return json.dumps(asdict(self))


def main(inner: InnerRun) -> None:
    """Run every trial that the run folder lacks, and mark the run as complete."""
    from runner.emulation.trials import run_trials  # noqa: PLC0415 - Mininet comes with it

    with one_line_errors():
        file = Path(inner.file)
        experiment = load_experiment(file, inner.overrides)
        store = RunStore.open(Path(inner.store))
        if store.manifest["config_hash"] != experiment.config_hash:
            raise InputError(f"{file}: it has changed since the run began: run it again")
        store.update_manifest(kernel_facts())
        run_trials(experiment, store, substrate="kernel", source=source_of(file), log=log)


if __name__ == "__main__":
    try:
        main(InnerRun(**json.loads(sys.argv[1])))
    except typer.Exit as end:
        sys.exit(end.exit_code)

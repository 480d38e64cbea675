"""Run the trials of ``wanbed run --clock virtual`` inside the virtual-time guest, into an existing run folder."""

import json
import sys
from pathlib import Path

import typer

from wanbed.ground.errors import InputError
from wanbed.results.records.run_store import RunStore
from wanbed.runner.cli.exit_status import log, one_line_errors
from wanbed.runner.emulation.virtual_run import InnerRun
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.runs.environment import kernel_facts


def main(inner: InnerRun) -> None:
    """Run every trial that the run folder lacks, and mark the run as complete."""
    # Mininet comes with these.
    from wanbed.runner.emulation.emulation import run_trials
    from wanbed.runner.emulation.one_machine import on_this_machine

    with one_line_errors():
        store = RunStore.open(Path(inner.store))
        experiment = parse_experiment(store.manifest["experiment"], inner.source, Path(inner.directory))
        if store.manifest["config_hash"] != experiment.config_hash:
            raise InputError(f"{inner.source}: a file that it names has changed since the run began: run it again")
        store.update_manifest(kernel_facts())
        run_trials(experiment, store, network_of=on_this_machine("kernel", inner.source, log), log=log)


if __name__ == "__main__":
    try:
        main(InnerRun(**json.loads(sys.argv[1])))
    except typer.Exit as end:
        sys.exit(end.exit_code)

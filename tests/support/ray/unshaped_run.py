"""Run an experiment over a cluster without shaping, for machines without netem, as ``wanbed run --rack`` does.

``unshaped_run ADDRESS RUNS EXPERIMENT [queue] [resume] [keep-going] [trunks] [hosts_per_machine=N]``: EXPERIMENT is the
file's content as JSON; with ``trunks`` those are shaped, still without netem. It prints the run's folder, and what it
logs after ``log:``; it ends as the command does.
"""

import json
import sys
from functools import partial
from pathlib import Path

import typer

from tests.support.rack.without_netem import TrunkMachine
from wanbed.runner.cli.exit_status import one_line_errors
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.rack_runs import rack_run as module
from wanbed.runner.rack_runs.agents import agents_on
from wanbed.runner.rack_runs.rack_run import rack_run
from wanbed.runner.runs.run_request import RackRequest, RunRequest


def main(address: str, folder: str, document: str, *options: str) -> None:
    """Run it, or what is missing of it."""
    runs = Path(folder)
    if "trunks" in options:
        trunks = f"{TrunkMachine.__module__}:TrunkMachine"
        with_trunks = partial(agents_on, machine=trunks)
        setattr(module, "agents_on", with_trunks)  # noqa: B010 - it is imported there, not exported
    with one_line_errors():
        content = json.loads(document)
        source = f"{content['name']}.yaml"
        request = RunRequest(
            parse_experiment(content, source, runs),
            source,
            runs,
            runs,
            lambda line: print("log:", line, flush=True),
            resume="resume" in options,
            keep_going="keep-going" in options,
        )
        over = RackRequest(
            address,
            hosts_per_machine=next((int(each.partition("=")[2]) for each in options if "=" in each), 1),
            queue="queue" in options,
            shaped="trunks" in options,
        )
        print(rack_run(request, over))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except typer.Exit as end:
        sys.exit(end.exit_code)

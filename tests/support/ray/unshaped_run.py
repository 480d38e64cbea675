"""Run an experiment over a cluster without shaping, for machines without netem, as ``wanbed run --rack`` does.

``unshaped_run ADDRESS RUNS EXPERIMENT [queue] [resume] [hosts_per_machine=N]``: EXPERIMENT is the file's content as
JSON. It prints the run's folder, and what it logs after ``log:``; it ends as the command does.
"""

import json
import sys
from pathlib import Path

import typer

from runner.cli.exit_status import one_line_errors
from runner.planner.experiment_file import parse_experiment
from runner.rack.rack_run import rack_run


def main(address: str, folder: str, document: str, *options: str) -> None:
    """Run it, or what is missing of it."""
    runs = Path(folder)
    with one_line_errors():
        content = json.loads(document)
        source = f"{content['name']}.yaml"
        path = rack_run(
            parse_experiment(content, source, runs),
            source,
            runs,
            address=address,
            resume="resume" in options,
            keep_gradients=False,
            log=lambda line: print("log:", line, flush=True),
            shaped=False,
            queue="queue" in options,
            hosts_per_machine=next((int(each.partition("=")[2]) for each in options if "=" in each), 1),
        )
        print(path)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except typer.Exit as end:
        sys.exit(end.exit_code)

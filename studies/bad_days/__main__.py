"""``make bad-days``: run the bad days, and bring ``docs/bad-days.md`` up to date."""

import os
import subprocess
from pathlib import Path
from typing import Annotated

import typer
import yaml

from studies.bad_days.day import Day, days
from studies.bad_days.lost_time import Loss, losses
from studies.bad_days.page import DayResult, draw, write_page
from wanbed.ground.files import write_whole
from wanbed.module_process import module_command
from wanbed.results import load
from wanbed.results.text import count_text
from wanbed.runner.cli.exit_status import fail, log, one_line_errors
from wanbed.runner.planner.experiment_file import load_experiment
from wanbed.runner.runs.faults import NO_DATA
from wanbed.runner.runs.run_folder import latest_run

PAGE = Path("docs/bad-days.md")
PICTURE = "bad-days.png"
MOMENTS = 8


def bad_days(
    *,
    simulated_only: Annotated[
        bool, typer.Option("--simulated-only", help="Leave virtual time out: two minutes instead of forty.")
    ] = False,
    runs: Annotated[Path, typer.Option("--runs", metavar="DIR", help="Where run folders go.")] = Path("runs/bad-days"),
    page: Annotated[Path, typer.Option("--page", metavar="FILE", help="The page to bring up to date.")] = PAGE,
) -> None:
    """Run how Atlas, Varuna and 1F1B fare on a WAN's bad days, and write the tables and the picture.

    What was finished before is not run again.
    """
    with one_line_errors():
        runs.mkdir(parents=True, exist_ok=True)
        results = []
        for day in days(MOMENTS):
            simulated = _losses(day, "simulate", runs)
            results.append(DayResult(day, simulated, () if simulated_only else _losses(day, "emulate", runs)))
        draw(results, page.parent / PICTURE)
        write_page(page, results, PICTURE)
        print(page)


def _losses(day: Day, engine: str, runs: Path) -> list[Loss]:
    """Run a day unless it has been run, and return its losses. End with one line if it fails."""
    file = runs / f"{day.ladder.name}-{engine}.yaml"
    write_whole(file, yaml.safe_dump(day.experiment(engine), sort_keys=False))
    experiment = load_experiment(file, [])
    store = latest_run(experiment, runs)
    if store is None or not store.manifest["complete"]:
        log(f"{day.ladder.title}: {engine} {count_text(len(experiment.points()), 'sweep point')}")
        command = module_command("wanbed", "simulate" if engine == "simulate" else "run", str(file))
        resume = [] if store is None else ["--resume"]
        ended = subprocess.run([*command, "--runs", str(runs), *resume], check=False, env=os.environ)
        store = latest_run(experiment, runs)
        if store is None or not store.manifest["complete"]:
            fail(
                f"{day.ladder.title}: wanbed {engine} ended with status {ended.returncode}: see its lines above",
                NO_DATA,
            )
    return losses(load(store.path), day)


if __name__ == "__main__":
    typer.run(bad_days)

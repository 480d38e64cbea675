"""``make paper``: run the paper's experiments, compare them with the simulator, and write the published files."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from studies.paper.execution import jobs_left, run_jobs
from studies.paper.part import PaperPart, Volume, parts_named, volume_table
from studies.paper.reference import PartResult, write_reference
from wanbed.ground.errors import InputError
from wanbed.results import load
from wanbed.results.reading.run import Run
from wanbed.runner.cli.exit_status import fail, log, one_line_errors
from wanbed.runner.runs.faults import NO_DATA
from wanbed.runner.runs.run_folder import DEFAULT_PARALLEL_RUNS, latest_run
from wanbed.runner.simulator.variant_simulation import simulate_variant
from wanbed.runner.validation.comparison import compare

REFERENCE = Path("results/reference/paper")
Engine = Literal["emulate", "simulate"]
HOW: dict[Engine, str] = {
    "emulate": "Every figure is of real Linux TCP over netem in virtual time, at real rates and sizes, with "
    "computation replayed from an estimated A100; the files are in runner/experiments/paper.",
    "simulate": "Every figure is simulated, and none measured: this page only shows what make paper would write.",
}


def paper(
    *,
    engine: Annotated[
        str, typer.Option(help="emulate (in virtual time) or simulate (a minute, to try the path).")
    ] = "emulate",
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="PART", help="Only that part; may be given several times.")
    ] = None,
    runs: Annotated[Path, typer.Option("--runs", metavar="DIR", help="Where run folders go.")] = Path("runs/paper"),
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            metavar="DIR",
            help="Where to write (default: results/reference/paper; simulated, the folder simulated in --runs).",
        ),
    ] = None,
    jobs: Annotated[
        int, typer.Option(min=1, metavar="N", help="Parts to run at a time, each on its core.")
    ] = DEFAULT_PARALLEL_RUNS,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list what would run, and how much it sends.")
    ] = False,
) -> None:
    """Run the paper's experiments, compare them with the simulator, and write report, claims, tables and figures.

    Finished parts are not run again. A part that fails is reported in one line and the others are kept; the exit status
    is then 4.
    """
    with one_line_errors():
        chosen = _engine(engine)
        parts = parts_named(only or [])
        volumes = [Volume.of(part.experiment(chosen)) for part in parts]
        if dry_run:
            print(volume_table(volumes), end="")
            return
        left = jobs_left(parts, chosen, runs)
        log(f"{len(parts) - len(left)} of {len(parts)} parts are complete")
        failed = run_jobs(left, chosen, runs, log, side_by_side=jobs)
        results = [result for part in parts if (result := _result(part, chosen, runs)) is not None]
        if not results:
            fail("no part has a result: the lines above say why", NO_DATA)
        missing = [part.name for part in parts if part not in [result.part for result in results]]
        folder = output or (REFERENCE if chosen == "emulate" else runs / "simulated")
        report, claims, *_ = write_reference(folder, results, volumes, HOW[chosen], missing)
        print(report)
        print(claims)
    if failed:
        raise typer.Exit(NO_DATA)


def _engine(name: str) -> Engine:
    match name:
        case "emulate" | "simulate":
            return name
    raise InputError(f"--engine: {name!r} is no engine: give emulate or simulate")


def _result(part: PaperPart, engine: Engine, runs: Path) -> PartResult | None:
    """Return the result of a part's finished trials, None if no trial has finished."""
    store = latest_run(part.experiment(engine), runs)
    run: Run | None = None if store is None else load(store.path)
    if run is None or run.summary.empty:
        return None
    log(f"{part.name}: {run.path}")
    return PartResult(part, run, compare(run, simulate_variant) if engine == "emulate" else ())


if __name__ == "__main__":
    typer.run(paper)

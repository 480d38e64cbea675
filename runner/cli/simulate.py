"""``wanbed simulate``: simulate an experiment as discrete events, without a network."""

import json
from pathlib import Path
from typing import Annotated

import typer

from wanbed.ground.exclusions import Exclusion, check_exclusions
from wanbed.runner.cli.arguments import (
    AsJson,
    DryRun,
    ExperimentFile,
    Jobs,
    Overrides,
    RackAddress,
    Resume,
    RunsFolder,
    path_of,
)
from wanbed.runner.cli.exit_status import log, one_line_errors
from wanbed.runner.rack_runs.pools import check_jobs


def simulate(
    file: ExperimentFile,
    *,
    overrides: Overrides = None,
    from_run: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="RUN",
            parser=path_of("--from"),
            help="Take the compute times that this run measured: the median at each GPU. Short for --set compute.from.",
        ),
    ] = None,
    resample: Annotated[
        bool, typer.Option("--resample", help="Draw from the times of --from. Short for --set compute.resample=true.")
    ] = False,
    jobs: Jobs = None,
    rack: RackAddress = None,
    resume: Resume = False,
    dry_run: DryRun = False,
    runs: RunsFolder = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """Simulate the sweep on all cores, with any engine in the file, and write the run folder and its report.

    Schedules, topology and result files are those of `wanbed run`, without root and without a network. A simulation is
    deterministic, so each trial runs once, with any `repeats`, unless compute times are drawn (compute.jitter,
    --resample). With --rack trials are spread over the CPUs of a Ray cluster.
    """
    with one_line_errors():
        written = {override.partition("=")[0].strip() for override in overrides or []}
        times = resample and from_run is None and "compute.from" not in written
        check_exclusions(
            Exclusion("--set engine", "wanbed simulate always simulates", "use wanbed run", when="engine" in written),
            Exclusion("--resample", "it draws from the times of a run", "give --from RUN", when=times),
        )
        check_jobs(jobs, rack)
        shortcuts = [] if from_run is None else [f"compute.from={json.dumps(str(from_run.resolve()))}"]
        shortcuts += ["compute.resample=true"] if resample else []
        from wanbed.runner.planner.experiment_file import load_experiment

        experiment = load_experiment(file, [*(overrides or []), *shortcuts], engine="simulate")
        if dry_run:
            from wanbed.runner.cli.dry_run import list_trials

            list_trials(experiment, as_json)
            return
        from wanbed.results.records.written_spans import WrittenSpans
        from wanbed.runner.execution import execute
        from wanbed.runner.runs.run_request import RackRequest, RunRequest

        over = None if rack is None else RackRequest(rack)
        source, spans = str(file), WrittenSpans()
        request = RunRequest(
            experiment, source, file.parent, runs, log, rack=over, jobs=jobs, resume=resume, written=spans
        )
        path = execute(request)
        from wanbed.runner.cli.outcome import show_outcome

        show_outcome(path, as_json, spans)

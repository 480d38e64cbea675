"""``wanbed simulate``: simulate an experiment as discrete events, without a network."""

from pathlib import Path

from ground.strict_model import InputError
from runner.cli.arguments import AsJson, DryRun, ExperimentFile, Jobs, Overrides, Resume, RunsFolder
from runner.cli.exit_status import one_line_errors
from runner.cli.outcome import list_trials, log, show_outcome
from runner.planner.experiment_file import load_experiment
from runner.simulated_runs.simulated_run import simulated_run


def simulate(
    file: ExperimentFile,
    *,
    overrides: Overrides = None,
    jobs: Jobs = None,
    resume: Resume = False,
    dry_run: DryRun = False,
    runs: RunsFolder = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """Simulate the sweep on all cores, with any engine in the file, and write the run folder and its report.

    Schedules, topology and result files are those of `wanbed run`, without root and without a network. A simulation is
    deterministic, so each trial runs once, with any `repeats`.
    """
    with one_line_errors():
        if any(override.partition("=")[0].strip() == "engine" for override in overrides or []):
            raise InputError("--set engine: wanbed simulate always simulates: leave it out, or use wanbed run")
        experiment = load_experiment(file, overrides or [], engine="simulate")
        if dry_run:
            list_trials(experiment, as_json)
            return
        show_outcome(simulated_run(experiment, runs, resume=resume, jobs=jobs, log=log), as_json)

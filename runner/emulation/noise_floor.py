"""Measure how far two runs of the same thing lie apart on this machine: the A/A floor.

No ratio below the floor means anything.
"""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from ground.strict_model import InputError
from results import load
from results.comparison.comparison import Check, PairKey, check
from results.comparison.judgement import noise_floor
from results.comparison.pairing import Pair
from results.reading.run import Run
from runner.planner.experiment_file import parse_experiment
from runner.resolve.experiment import Experiment
from runner.runs.progress import Progress
from runner.runs.run_folder import begin_run, check_runs_folder, exclusively


def noise_experiment(run: Run, variants: Collection[str], repeats: int) -> Experiment:
    """Return an emulated run's experiment again, with ``repeats`` repeats, for a run that measures noise.

    It has those ``variants`` alone, unless a sweep counts them. Its dilation is the run's. Paths in it are relative to
    the current folder, since a run does not record where its file lay. Raises InputError where this version cannot run
    what is recorded.
    """
    document: dict[str, Any] = dict(run.manifest.get("experiment") or {})
    source = f"--noise: {run.path / 'manifest.json'}"
    if not document:
        raise InputError(f"{source}: it does not record the experiment, so that nothing can be run again")
    if not any(path.partition(".")[0] == "variants" for path in document.get("sweep") or ()):
        document["variants"] = [each for each in document.get("variants", ()) if each.get("name") in variants]
    document |= {"repeats": repeats, "dilation": run.manifest.get("dilation")}
    return parse_experiment(document, source, Path())


def run_again(run: Run, experiment: Experiment, runs: Path, log: Callable[[str], None]) -> Run:
    """Emulate ``experiment`` into a new folder below ``runs``, on the substrate that ``run`` was emulated on."""
    # Mininet comes with these, which a machine that only simulates lacks.
    from runner.emulation.emulation import emulate  # noqa: PLC0415
    from testbed.testbed import usable_substrate  # noqa: PLC0415

    substrate = str((run.manifest.get("substrate") or {}).get("name") or "auto")
    usable_substrate(substrate)
    check_runs_folder(runs)
    dilation = float(run.manifest["dilation"])
    store = begin_run(experiment, runs, {"dilation": dilation, "capacity_bps": None, "noise_of": run.path.name})
    trials = len(experiment.trials())
    log(f"{store.path}: {trials} trials, to measure the noise of this machine")
    with exclusively(store.path), Progress(trials) as progress:
        emulate(
            experiment,
            store,
            dilation=dilation,
            substrate=substrate,
            source=str(store.path.resolve()),
            progress=progress,
            log=log,
        )
        store.finish()
    return load(store.path)


def check_noise(run: Run, noise: Run) -> Check:
    """Compare the noise run with the run that it repeats; variants that the noise run leaves out are allowed."""
    return check(run, noise, allow=["variants"])


def noise_floors(noise: Check, pairs: Collection[Pair], seed: int = 0) -> Mapping[PairKey, float]:
    """Return the floor of every pair, by A's sweep point and variant, from the noise run's repeats of A's variant.

    A pair of which the noise run measured nothing has none. With an ``--allow`` of other iteration counts the floor is
    that of A's count.
    """
    repeated = {(each.a.point, each.a.variant): each.b.times_s for each in noise.pairs if each.b.iterations}
    return {
        key: noise_floor(repeated[key], pair.a, pair.b, seed)
        for pair in pairs
        if (key := (pair.a.point, pair.a.variant)) in repeated
    }

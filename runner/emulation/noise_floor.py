"""Measure how far two runs of the same experiment differ on this machine: the A/A noise floor.

Ratios below the floor are not significant.
"""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from wanbed.ground.errors import InputError
from wanbed.results import load
from wanbed.results.comparison.comparison import Check, PairKey, check
from wanbed.results.comparison.judgement import noise_floor
from wanbed.results.comparison.pairing import Pair
from wanbed.results.reading.run import Run
from wanbed.results.text import count_text
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.experiment import Experiment
from wanbed.runner.runs.progress import Progress
from wanbed.runner.runs.run_folder import begin_run, check_runs_folder, exclusively


def noise_experiment(run: Run, variants: Collection[str], repeats: int) -> Experiment:
    """Return the experiment of an emulated run with ``repeats`` repeats, for a run that measures noise.

    It has only these ``variants``, unless the sweep has paths into variants. Its dilation is the run's. Its paths are
    relative to the current folder, because a run does not record the folder of its file. Raise InputError if the
    manifest records no experiment, or one that this version cannot run.
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
    """Emulate ``experiment`` into a new folder below ``runs``, on the substrate of ``run``. Return the new run.

    Raise InputError for a run over a rack.
    """
    # These import Mininet, which is not installed on machines that only simulate.
    from wanbed.runner.emulation.emulation import emulate  # noqa: PLC0415
    from wanbed.runner.emulation.one_machine import on_this_machine  # noqa: PLC0415
    from wanbed.testbed.rack.rack_testbed import RACK  # noqa: PLC0415
    from wanbed.testbed.testbed import usable_substrate  # noqa: PLC0415

    substrate = str((run.manifest.get("substrate") or {}).get("name") or "auto")
    if substrate == RACK:
        raise InputError(
            f"--noise: {run.path} was made over a rack, which this command does not use: run it again there"
        )
    usable_substrate(substrate)
    check_runs_folder(runs)
    dilation = float(run.manifest["dilation"])
    store = begin_run(experiment, runs, {"dilation": dilation, "capacity_bps": None, "noise_of": run.path.name})
    trials = experiment.trials()
    log(f"{store.path}: {count_text(len(trials), 'trial')}, to measure the noise of this machine")
    with exclusively(store.path), Progress(len(trials), pending=trials) as progress:
        emulate(
            experiment,
            store,
            dilation=dilation,
            network_of=on_this_machine(substrate, str(store.path.resolve()), log),
            progress=progress,
            log=log,
        )
        store.finish()
    return load(store.path)


def check_noise(run: Run, noise: Run) -> Check:
    """Compare the noise run with the run that it repeats. It may have fewer variants."""
    return check(run, noise, allow=["variants"])


def noise_floors(noise: Check, pairs: Collection[Pair], seed: int = 0) -> Mapping[PairKey, float]:
    """Return the noise floor of each pair, by A's sweep point and variant, from the noise run's repeats of A's variant.

    Pairs that the noise run did not measure are left out. If ``--allow`` admits different iteration counts, the floor
    is that of A's count.
    """
    repeated = {(each.a.point, each.a.variant): each.b.times_s for each in noise.pairs if each.b.iterations}
    return {
        key: noise_floor(repeated[key], pair.a, pair.b, seed)
        for pair in pairs
        if (key := (pair.a.point, pair.a.variant)) in repeated
    }

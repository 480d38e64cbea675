import io
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.runner.tasks_at_hand import TasksAtHand
from tests.support.simulator.simulation_on_paper import simulate_on_paper
from wanbed.results.records.run_store import RunStore
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.rack.simulations.rack_pool import RackPool
from wanbed.runner.resolve.experiment import Experiment
from wanbed.runner.runs.progress import Progress
from wanbed.runner.runs.run_folder import begin_run
from wanbed.runner.simulated_runs.process_pool import ProcessPool
from wanbed.runner.simulated_runs.simulated_run import Pool, simulate_sweep
from wanbed.runner.simulator.deadlock import SimulationError
from wanbed.runner.simulator.simulation import Simulation

POINTS = 40


@pytest.fixture(name="experiment", scope="module")
def swept_experiment() -> Experiment:
    document = {
        "topology": {"datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}], "wan": {}},
        "compute": {"forward": "10ms", "activation": "32MiB"},
        "training": {"microbatches": 2},
        "variants": [{"name": "gpipe", "schedule": "gpipe"}],
        "sweep": {"topology.wan.latency": [f"{latency}ms" for latency in range(POINTS)]},
        "engine": "simulate",
    }
    return parse_experiment(document, "exp.yaml", Path())


def swept(of: Experiment, root: Path, pool: Pool, simulate: Any = simulate_on_paper) -> tuple[RunStore, str]:
    store, stream = begin_run(of, root, {"dilation": 1.0}), io.StringIO()
    with Progress(len(of.trials()), stream=stream) as progress:
        simulate_sweep(of, store, pool=pool, progress=progress, simulate=simulate)
    return store, stream.getvalue()


def trial_files(run: Path) -> dict[str, bytes]:
    return {str(file.relative_to(run)): file.read_bytes() for file in (run / "trials").rglob("*.*") if file.is_file()}


def failing_from(latency_ns: int, topology: Any, *rest: Any, **effects: Any) -> Simulation:
    if topology.wan[0].conditions.latency_ns >= latency_ns:
        raise SimulationError("it waits for itself")
    return simulate_on_paper(topology, *rest, **effects)


def test_it_leaves_the_files_that_one_process_would(experiment: Experiment, tmp_path: Path) -> None:
    alone, _ = swept(experiment, tmp_path / "alone", ProcessPool(1))
    over, told = swept(experiment, tmp_path / "over", RackPool(TasksAtHand()))
    assert trial_files(over.path) == trial_files(alone.path)
    assert f"{POINTS} of {POINTS} trials done" in told


def test_short_trials_go_several_at_a_time(experiment: Experiment, tmp_path: Path) -> None:
    tasks = TasksAtHand()
    swept(experiment, tmp_path, RackPool(tasks))
    assert len(tasks.started) < POINTS


def test_no_machine_gets_all_that_is_left(experiment: Experiment, tmp_path: Path) -> None:
    tasks = TasksAtHand(at_a_time=POINTS // 4)
    swept(experiment, tmp_path, RackPool(tasks))
    assert len(tasks.started) >= POINTS // 2


def test_a_failure_ends_the_sweep_and_keeps_what_had_finished(experiment: Experiment, tmp_path: Path) -> None:
    tasks = TasksAtHand()
    with pytest.raises(SimulationError, match=r"^topology\.wan\.latency=5ms: gpipe: it waits for itself$"):
        swept(experiment, tmp_path, RackPool(tasks), partial(failing_from, 5_000_000))
    (run,) = tmp_path.iterdir()
    store = RunStore.open(run)
    assert [store.has_trial(*trial) for trial in experiment.trials()] == [latency < 5 for latency in range(POINTS)]
    assert not list(run.rglob("*.partial"))
    assert tasks.cancelled


def test_progress_goes_on_while_nothing_ends(experiment: Experiment, tmp_path: Path) -> None:
    _, told = swept(experiment, tmp_path, RackPool(TasksAtHand(looks=3)))
    assert f"{POINTS} of {POINTS} trials done" in told

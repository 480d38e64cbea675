import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.runner.planner_instances import random_task
from tests.support.runner.tasks_at_hand import TasksAtHand
from tests.support.simulator.simulation_on_paper import simulate_on_paper
from wanbed.ground.errors import InputError, SimulationError
from wanbed.results.records.run_store import RunStore
from wanbed.runner.planner.effort import Effort, LimitReachedError, Limits
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.planner.planning import plan
from wanbed.runner.planner.pricing import Pricer
from wanbed.runner.planner.search_space import Candidate
from wanbed.runner.rack_runs.simulations import RackPool, RackPricing, rack_spread_of
from wanbed.runner.resolve.experiment import Experiment
from wanbed.runner.runs.progress import Progress
from wanbed.runner.runs.run_folder import begin_run
from wanbed.runner.simulated_runs.process_pool import ProcessPool
from wanbed.runner.simulated_runs.simulated_run import Pool, simulate_sweep
from wanbed.runner.simulator.simulation import Simulation

POINTS = 40


@pytest.fixture(name="experiment", scope="module")
def swept_experiment() -> Experiment:
    return parse_experiment(
        {
            "topology": {"datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}], "wan": {}},
            "compute": {"forward": "10ms", "activation": "32MiB"},
            "training": {"microbatches": 2},
            "variants": [{"name": "gpipe", "schedule": "gpipe"}],
            "sweep": {"topology.wan.latency": [f"{latency}ms" for latency in range(POINTS)]},
            "engine": "simulate",
        },
        "exp.yaml",
        Path(),
    )


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


ONE, TWO, THREE, BAD = (Candidate(cells, 1, (("east", 2),)) for cells in (1, 2, 3, 4))


@dataclass(frozen=True)
class Cells:
    """Stands for a resolved variant."""

    cells: int
    schedule: str = "rackmine:Mine"

    @property
    def at_once(self) -> "tuple[Cells]":
        return (self,)


@dataclass
class CellCounter:
    """Stands for a pricer: a candidate's price is its number of DP-cells."""

    priced: list[int] = field(default_factory=list)

    def price(self, variant: "Cells") -> int:
        self.priced.append(variant.cells)
        return variant.cells


def resolve(candidate: Candidate) -> Any:
    if candidate == BAD:
        raise InputError("no such schedule")
    return Cells(candidate.dp_cells)


def pricing(tasks: TasksAtHand, limits: Limits | None = None) -> RackPricing:
    return RackPricing(tasks, cast("Pricer", CellCounter()), resolve, Effort(limits or Limits()))


def test_what_is_expected_is_begun_as_far_as_there_is_room() -> None:
    tasks = TasksAtHand(at_a_time=2)
    priced = pricing(tasks)
    priced.expect(iter((ONE, TWO, THREE)))
    assert len(tasks.started) == 2
    assert [priced(each) for each in (ONE, TWO, THREE)] == [1, 2, 3]
    assert len(tasks.started) == 3


def test_machines_are_told_which_schedules_of_a_user_a_candidate_follows() -> None:
    tasks = TasksAtHand()
    pricing(tasks)(ONE)
    assert tasks.schedules == [("rackmine:Mine",)]


def test_what_is_expected_and_fails_is_reported_only_if_it_is_asked_for() -> None:
    priced = pricing(TasksAtHand())
    priced.expect(iter((BAD, ONE)))
    assert priced(ONE) == 1
    with pytest.raises(InputError, match="no such schedule"):
        priced(BAD)


def test_what_nobody_asked_for_is_ended() -> None:
    tasks = TasksAtHand()
    priced = pricing(tasks)
    priced.expect(iter((ONE, TWO)))
    priced(ONE)
    priced.end()
    assert tasks.cancelled == [1]


def test_limits_hold_while_a_machine_simulates() -> None:
    priced = pricing(TasksAtHand(looks=1), Limits(time_s=0.0))
    with pytest.raises(LimitReachedError):
        priced(ONE)


def test_expected_candidates_are_taken_only_when_there_is_room() -> None:
    taken: list[Candidate] = []

    def likely() -> Iterator[Candidate]:
        for candidate in (ONE, TWO, THREE):
            taken.append(candidate)
            yield candidate

    pricing(TasksAtHand(at_a_time=1)).expect(likely())
    assert taken == [ONE]


# To price everything is dear, and two plans of eight show it.
EXHAUSTIVELY = (3, 6)


@pytest.mark.parametrize(
    ("seed", "search"),
    [
        pytest.param(
            seed, search, marks=pytest.mark.soak if search == "exhaustive" and seed not in EXHAUSTIVELY else ()
        )
        for seed in range(8)
        for search in ("greedy", "better", "exhaustive")
    ],
)
def test_every_search_finds_the_plan_that_it_finds_without_a_rack(seed: int, search: Any) -> None:
    tasks = TasksAtHand(at_a_time=3)
    alone = plan(random_task(seed), search, runners_up=3)
    assert plan(random_task(seed), search, runners_up=3, spread=rack_spread_of(tasks)) == alone

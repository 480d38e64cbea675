"""Run drawn experiments with a fake guest, which writes runs as a real one does."""

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.runner.emulated_run import constant
from tests.support.until import until_within
from wanbed.ground.errors import InputError, MissingError
from wanbed.results.records.run_store import RunStore, TrialRecord
from wanbed.results.records.schema import CalibrationRow
from wanbed.results.records.span_log import RankPlace, Span, SpanLogContents
from wanbed.results.records.trial_id import TrialId
from wanbed.runner.validation import random_execution
from wanbed.runner.validation.random_batch import Batch
from wanbed.runner.validation.random_execution import BATCH, agreement_of, begin_runs, run_random
from wanbed.runner.validation.random_experiments import DrawnExperiment, write_experiments
from wanbed.testbed.virtual_time.guest import GuestError
from wanbed.testbed.virtual_time.kernel_cache import KernelRecord, VirtualKernel
from wanbed.testbed.virtual_time.watchdog import Watch

S = 10**9
KERNEL = VirtualKernel(Path("linux"), KernelRecord("6.1", "source", "hash", 0))

Inside = Callable[[RunStore], None]


def finish(store: RunStore, iteration_s: float = 2.0) -> None:
    """What a guest leaves of an experiment that takes so long."""
    (point,) = store.manifest["sweep_points"]
    (variant,) = point["variants"]
    store.write_calibration(0, [CalibrationRow("east", "west", "wan", 20.0, 20.0, None, 95e6, {}, True)])
    length_ns, iterations = round(iteration_s * S), store.manifest["training"]["iterations"]
    spans = tuple(Span("forward", each, 0, each * length_ns, (each + 1) * length_ns) for each in range(iterations))
    log = SpanLogContents(RankPlace(0, "east-0", "east", 0, 0, 0), spans, complete=True)
    store.write_trial(TrialRecord(TrialId(0, variant, 0), [log], {}, {"warmup_iterations": 1}))
    store.finish()


def failing(reason: str) -> Inside:
    """Return guests of which the third experiment fails for that reason."""

    def inside(store: RunStore) -> None:
        if "random-1-002" in store.path.name:
            random_execution.fail_run(store, reason)
        else:
            finish(store)

    return inside


class Guests:
    """Stands for ``enter_virtual_time``: ``inside`` is done to each run of a batch in turn."""

    def __init__(self, inside: Inside = finish) -> None:
        self.inside = inside
        self.batches: list[list[str]] = []
        self.cores: list[int] = []
        self.most_at_a_time = self._now = 0
        self._lock = threading.Lock()

    def __call__(
        self, kernel: VirtualKernel, module: str, arguments: Sequence[str], *, watch: Watch, **rest: Any
    ) -> int:
        assert module == "wanbed.runner.validation.random_batch"
        assert watch.sign is not None
        (text,) = arguments
        batch = Batch.from_json(text)
        with self._lock:
            self._now += 1
            self.most_at_a_time = max(self.most_at_a_time, self._now)
            self.batches.append([Path(file).stem for file, _ in batch.runs])
            self.cores.append(rest["place"].core)
        try:
            for _, folder in batch.runs:
                watch.sign()
                self.inside(RunStore.open(Path(folder)))
            watch.sign()
        finally:
            with self._lock:
                self._now -= 1
        return 0


@pytest.fixture
def drawn(tmp_path: Path) -> list[DrawnExperiment]:
    return write_experiments(1, 7, tmp_path / "random")


def run(
    monkeypatch: pytest.MonkeyPatch,
    drawn: list[DrawnExperiment],
    guests: Guests,
    *,
    resume: bool = False,
    jobs: int = 2,
) -> Any:
    monkeypatch.setattr(random_execution, "enter_virtual_time", guests)
    stores = run_random(1, drawn, KERNEL, resume=resume, side_by_side=jobs, log=lambda _: None)
    return agreement_of(1, drawn, stores, constant(2.2))


def test_every_experiment_is_compared_with_its_simulation(
    monkeypatch: pytest.MonkeyPatch, drawn: list[DrawnExperiment]
) -> None:
    found = run(monkeypatch, drawn, Guests())
    assert [result.number for result in found.results] == list(range(7))
    assert [result.error for result in found.results] == pytest.approx([0.1] * 7)
    assert found.failed == {}


def test_a_guest_takes_several_and_none_is_run_twice(
    monkeypatch: pytest.MonkeyPatch, drawn: list[DrawnExperiment]
) -> None:
    run(monkeypatch, drawn, guests := Guests(), jobs=1)
    assert [len(batch) for batch in guests.batches] == [BATCH, 7 - BATCH]
    assert sorted(name for batch in guests.batches for name in batch) == [each.name for each in drawn]
    assert guests.most_at_a_time == 1


def test_guests_run_side_by_side(monkeypatch: pytest.MonkeyPatch, drawn: list[DrawnExperiment]) -> None:
    together = threading.Barrier(2)

    def both(store: RunStore) -> None:
        if store.path.name.startswith(("random-1-000", "random-1-005")):
            together.wait(30)
        finish(store)

    run(monkeypatch, drawn, guests := Guests(both))
    assert guests.most_at_a_time == 2


def test_a_failed_experiment_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch, drawn: list[DrawnExperiment]
) -> None:
    found = run(monkeypatch, drawn, Guests(failing("rank 3 is\nlost")))
    assert found.failed == {2: "rank 3 is lost"}
    assert len(found.results) == 6


def test_after_a_guest_dies_the_rest_runs_in_another(
    monkeypatch: pytest.MonkeyPatch, drawn: list[DrawnExperiment]
) -> None:
    def dies(store: RunStore) -> None:
        if "random-1-001" in store.path.name:
            raise GuestError("virtual time is stuck")
        finish(store)

    found = run(monkeypatch, drawn, guests := Guests(dies), jobs=1)
    assert found.failed == {1: "virtual time is stuck"}
    assert [result.number for result in found.results] == [0, 2, 3, 4, 5, 6]
    assert guests.batches[1][0] == "random-1-002"


def test_resuming_runs_only_what_has_not_finished(
    monkeypatch: pytest.MonkeyPatch, drawn: list[DrawnExperiment]
) -> None:
    run(monkeypatch, drawn, Guests(failing("not today")))
    found = run(monkeypatch, drawn, guests := Guests(), resume=True)
    assert guests.batches == [["random-1-002"]]
    assert (len(found.results), found.failed) == (7, {})


def test_another_kernel_runs_all_again(drawn: list[DrawnExperiment]) -> None:
    stores = begin_runs(drawn, KERNEL, resume=False)
    for store in stores.values():
        finish(store)
    assert begin_runs(drawn, KERNEL, resume=True)[0].path == stores[0].path
    newer = VirtualKernel(Path("linux"), KernelRecord("6.2", "source", "other", 0))
    assert begin_runs(drawn, newer, resume=True)[0].path != stores[0].path


def test_an_interrupt_ends_the_guests_and_keeps_what_has_finished(
    monkeypatch: pytest.MonkeyPatch, drawn: list[DrawnExperiment]
) -> None:
    ended = []

    class Endless(Guests):
        def __call__(self, *arguments: Any, watch: Watch, **rest: Any) -> int:
            assert watch.sign is not None
            folder = Path(Batch.from_json(arguments[2][0]).runs[0][1])
            finish(RunStore.open(folder))
            try:
                while True:
                    watch.sign()
                    time.sleep(0.01)
            finally:
                ended.append(folder)

    def interrupted(_: object) -> None:
        until_within(60, lambda: all(random_execution.is_complete(store) for store in opened(drawn)))
        raise KeyboardInterrupt

    monkeypatch.setattr(random_execution, "as_completed", interrupted)
    found = run(monkeypatch, drawn, Endless(), jobs=2)
    assert [result.number for result in found.results] == [0, BATCH]
    assert len(ended) == 2
    assert found.failures[-1] == "5 of 7 random experiments were not run."


def opened(drawn: list[DrawnExperiment]) -> list[RunStore]:
    """The runs of the first experiment of each guest."""
    return [RunStore.open(next(drawn[number].runs.iterdir())) for number in (0, BATCH)]


def test_guests_that_cannot_start_end_the_run(monkeypatch: pytest.MonkeyPatch, drawn: list[DrawnExperiment]) -> None:
    def missing(_: RunStore) -> None:
        raise MissingError("virtual time takes memory")

    with pytest.raises(MissingError, match="memory"):
        run(monkeypatch, drawn, Guests(missing))


def test_a_simulation_that_is_refused_is_a_failure_of_that_experiment(
    monkeypatch: pytest.MonkeyPatch, drawn: list[DrawnExperiment]
) -> None:
    def refused(*_: object, **__: object) -> Any:
        raise InputError("this has no simulation")

    stores = begin_runs(drawn, KERNEL, resume=False)
    for store in stores.values():
        finish(store)
    assert agreement_of(1, drawn, stores, refused).failed == dict.fromkeys(range(7), "this has no simulation")

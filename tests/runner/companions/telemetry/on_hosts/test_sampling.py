"""Test the sampling loop with a sampler that counts its readings."""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, Self

import pyarrow as pa
import pytest

from wanbed.ground.errors import MissingError
from wanbed.results.records.run_store import Rows
from wanbed.results.records.schema import trial_schema
from wanbed.results.records.trial_table import TrialTable
from wanbed.runner.companions.telemetry.on_hosts.sampling import Sampler, Samples, SamplingLoop, sampling
from wanbed.testbed.running_testbed import RunningTestbed
from wanbed.testbed.substrate.substrate import SubstrateError

COUNTS = TrialTable("counts.parquet", "counts", trial_schema(("time_ns", pa.int64(), "when")), tuple)
NO_TESTBED: RunningTestbed = SimpleNamespace()  # type: ignore[assignment]


class Counting(Sampler[int]):
    """A sampler that returns its number of readings, and that can fail or return None."""

    interval_s = 0.002

    def __init__(self) -> None:
        self.readings = 0
        self.nothing = False
        self.fault: Exception | None = None
        self.read_often = threading.Event()
        self.failed = threading.Event()

    @classmethod
    def of(cls, testbed: RunningTestbed, ending: ExitStack) -> Self | None:
        return cls()

    def read(self) -> int | None:
        if self.fault is not None:
            self.failed.set()
            raise self.fault
        self.readings += 1
        if self.readings >= 9:
            self.read_often.set()
        return None if self.nothing else self.readings

    def tables(self, readings: Sequence[tuple[int, int]], dilation: float) -> Mapping[TrialTable, Rows]:
        return {COUNTS: readings}

    def facts(self, readings: Sequence[tuple[int, int]]) -> Mapping[str, Any]:
        return {"counted": len(readings)}


@pytest.fixture
def sampler() -> Counting:
    return Counting()


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    before = {*threading.enumerate()}
    yield
    # One of an earlier test may have ended meanwhile.
    assert {*threading.enumerate()} <= before


def test_it_reads_at_the_start_during_and_at_the_end(sampler: Counting) -> None:
    with SamplingLoop(sampler, time.monotonic_ns()) as loop:
        assert sampler.readings >= 1
        assert sampler.read_often.wait(5)
        before_end = sampler.readings
    assert [count for _, count in loop.readings] == list(range(1, sampler.readings + 1))
    assert sampler.readings > before_end


def test_readings_are_an_interval_apart_at_least(sampler: Counting) -> None:
    sampler.reads_at_end = False
    with SamplingLoop(sampler, time.monotonic_ns()) as loop:
        assert sampler.read_often.wait(5)
    assert all(other - one >= 2_000_000 for (one, _), (other, _) in pairwise(loop.readings))


def test_a_sampler_may_go_without_a_last_reading(sampler: Counting) -> None:
    sampler.reads_at_end = False
    sampler.interval_s = 3600
    with SamplingLoop(sampler, 0) as loop:
        pass
    assert [count for _, count in loop.readings] == [1]


def test_empty_readings_are_not_stored(sampler: Counting) -> None:
    sampler.nothing = True
    with SamplingLoop(sampler, 0) as loop:
        assert sampler.read_often.wait(5)
    assert loop.readings == []


def test_times_count_from_the_epoch_and_are_never_before_it(sampler: Counting) -> None:
    hour_ns = 3600 * 10**9
    with SamplingLoop(sampler, time.monotonic_ns() + hour_ns) as later:
        pass
    assert {time_ns for time_ns, _ in later.readings} == {0}
    with SamplingLoop(sampler, time.monotonic_ns() - hour_ns) as earlier:
        pass
    assert all(hour_ns <= time_ns < hour_ns + 100 * 10**9 for time_ns, _ in earlier.readings)


def test_a_long_trial_keeps_a_bounded_number_of_evenly_spread_readings(sampler: Counting) -> None:
    sampler.max_readings = 4
    with SamplingLoop(sampler, 0) as loop:
        assert sampler.read_often.wait(5)
    counts = [count for _, count in loop.readings]
    assert len(counts) < 4
    assert counts[0] == 1
    assert all(later > earlier for earlier, later in pairwise(counts))
    assert len({count % 2 for count in counts[:2]}) == 1


def test_the_next_reading_waits_for_the_share_of_a_core(sampler: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    sampler.max_core_share = 0.02
    # Two looks at the clock a reading: each has cost 30 ms.
    monkeypatch.setattr(time, "thread_time", iter([0.0, 0.03] * 100).__next__)
    loop = SamplingLoop(sampler, 0)

    def wait(pause_s: float) -> bool:
        pauses.append(pause_s)
        return len(pauses) == 3

    monkeypatch.setattr(loop._ended, "wait", wait)
    with loop:
        loop._thread.join()
    assert pauses == pytest.approx([1.5, 1.5, 1.5], abs=0.1)


@pytest.mark.parametrize(
    "fault", [SubstrateError("the gateway guest ended"), OSError("a socket closed"), KeyError("x")]
)
def test_an_error_of_a_later_reading_is_raised_at_the_end(sampler: Counting, fault: Exception) -> None:
    loop = SamplingLoop(sampler, 0)
    loop.__enter__()
    assert sampler.read_often.wait(5)
    sampler.fault = fault
    assert sampler.failed.wait(5)
    sampler.fault = None
    with pytest.raises(type(fault)) as raised:
        loop.__exit__()
    assert raised.value is fault


class Refused(Counting):
    """A sampler that opens something and whose first reading fails."""

    closed = False

    @classmethod
    def of(cls, testbed: RunningTestbed, ending: ExitStack) -> Self | None:
        ending.callback(setattr, cls, "closed", True)
        return cls()

    def read(self) -> int | None:
        raise MissingError("modprobe tcp_diag")


def test_a_first_reading_that_fails_is_raised_at_once_and_all_is_closed() -> None:
    begun = False
    with pytest.raises(MissingError), sampling((Counting, Refused), NO_TESTBED, 0, 1.0):
        begun = True
    assert not begun
    assert Refused.closed


class Needless(Counting):
    @classmethod
    def of(cls, testbed: RunningTestbed, ending: ExitStack) -> Self | None:
        return None


def test_rows_and_facts_are_there_afterwards_in_undilated_time() -> None:
    with sampling((Needless, Counting), NO_TESTBED, time.monotonic_ns() - 10**12, 10.0) as samples:
        assert samples.tables == samples.facts == {}
    rows = samples.tables[COUNTS]
    assert isinstance(rows, list)
    assert samples.facts == {"counted": len(rows)}
    assert all(10**11 <= time_ns < 2 * 10**11 for time_ns, _ in rows)


def test_facts_of_the_measured_part_begin_with_the_reading_before_it() -> None:
    readings = [(time_ns, "") for time_ns in (0, 10, 20, 30, 40)]
    assert Samples().measured(readings) == readings
    assert Samples(measured_ns=(15, 30)).measured(readings) == readings[1:4]
    assert Samples(measured_ns=(10, 19)).measured(readings) == readings[1:2]
    assert Samples(measured_ns=(50, 60)).measured(readings) == readings[4:]


def test_a_trial_that_fails_leaves_no_rows_and_no_thread() -> None:
    with pytest.raises(ZeroDivisionError), sampling((Counting,), NO_TESTBED, 0, 1.0) as samples:
        _ = 1 // 0
    assert samples.tables == {}

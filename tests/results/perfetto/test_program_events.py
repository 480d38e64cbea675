"""The trace of a program: its ranks' threads, and who kept the others waiting in a collective."""

import copy
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.support.results.programs import ProgramOnPaper, add_program, program_run
from tests.support.results.trace_rules import Slice, load_trace, names_of, problems, slices_of
from wanbed.results.perfetto.trace_file import write_trace
from wanbed.results.reading.selection import Selection

Trace = dict[str, Any]


def traced(path: Path, **asked: Any) -> Trace:
    write_trace(path, path / "trace.json", Selection(**asked))
    trace = load_trace(path / "trace.json")
    assert problems(trace) == []
    return trace


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    return traced(program_run(tmp_path, {"ddp": ProgramOnPaper()}))


def named(trace: Trace, name: str) -> list[Slice]:
    return [each for own in slices_of(trace).values() for each in own if each.event["name"] == name]


def test_a_rank_has_threads_for_iterations_work_and_collectives(trace: Trace) -> None:
    threads = sorted(set(names_of(trace, "thread_name").values()))
    assert [name for name in threads if name.startswith("rank 2")] == [
        "rank 2",
        *(f"rank 2 collectives {lane}" for lane in (1, 2, 3)),
        "rank 2 iterations 1",
    ]
    assert not any("GPU" in name for name in threads)


def test_a_collective_says_its_bytes_group_and_who_was_last(trace: Trace) -> None:
    about = [each.event["args"] for each in named(trace, "all-reduce")]
    assert len(about) == 9
    assert {(each["bytes"], each["group"], each["last_to_begin"]) for each in about} == {
        (16 * 2**20, "0,1,2", "rank 2 on south-0")
    }
    assert [each["waited_us"] for each in about if each["rank"] == 2] == [Decimal("0.000")] * 3


def test_the_last_rank_has_an_arrow_to_each_one_that_waited(trace: Trace) -> None:
    waits = named(trace, "waiting for rank 2 on south-0")
    assert sorted(each.event["args"]["rank"] for each in waits) == [0, 0, 0, 1, 1, 1]
    arrows = [event for event in trace["traceEvents"] if event["ph"] == "s"]
    assert {event["name"] for event in arrows} == {"all-reduce"}
    assert len(arrows) == len(waits)


def test_iterations_say_which_of_them_were_measured_or_profiled(trace: Trace) -> None:
    told = {
        event["args"]["iteration"]: (event["args"]["measured"], event["args"]["profiled"])
        for event in trace["traceEvents"]
        if event["ph"] == "b" and event["name"].startswith("iteration ")
    }
    assert told == {0: (False, False), **dict.fromkeys(range(1, 5), (True, False)), 5: (False, True)}
    assert [len(named(trace, f"iteration {number}")) for number in range(6)] == [3] * 6


def test_a_single_iteration_knows_whether_it_was_profiled(tmp_path: Path) -> None:
    path = program_run(tmp_path, {"ddp": ProgramOnPaper()})
    trace = traced(path, iteration=2)
    (begin,) = (e for e in trace["traceEvents"] if e["ph"] == "b" and e["name"] == "iteration 2")
    assert begin["args"] == {"iteration": 2, "measured": True, "profiled": False}


def test_schedules_and_programs_keep_threads_of_their_own(build_run: Callable[..., Path]) -> None:
    path = build_run(latencies=("40ms",), variants=("gpipe",))
    add_program(path, "ddp", ProgramOnPaper(hosts=(("east-0", "east"), ("west-1", "west"))))
    threads = set(names_of(traced(path), "thread_name").values())
    assert {"GPU 0", "rank 0", "rank 1"} <= threads


def of_waiting(trace: Trace) -> dict[str, Any]:
    return next(event for event in trace["traceEvents"] if event.get("cat") == "waiting")


BREAKS: dict[str, Callable[[Trace], object]] = {
    "does not divide a collective": lambda trace: of_waiting(trace).update(dur=Decimal("1.000")),
    "for another rank": lambda trace: of_waiting(trace).update(name="waiting for rank 1 on west-0"),
    "between two different collectives": lambda trace: named(trace, "all-reduce")[0].event["args"].update(iteration=3),
    "a transfer of a collective without a wait": lambda trace: trace["traceEvents"].remove(of_waiting(trace)),
}


@pytest.mark.parametrize("complaint", BREAKS)
def test_the_checker_tells_what_is_wrong_with_a_collective(trace: Trace, complaint: str) -> None:
    broken = copy.deepcopy(trace)
    BREAKS[complaint](broken)
    assert any(complaint in each for each in problems(broken))

"""The checker itself: each rule, broken, is told."""

import copy
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.support.results.trace_rules import load_trace, problems
from wanbed.results.perfetto.trace_file import write_trace
from wanbed.results.reading.selection import Selection

Trace = dict[str, Any]


@pytest.fixture
def trace(build_run: Callable[..., Path]) -> Trace:
    path = build_run(variants=("one", "filled"), latencies=("40ms",), prefill={"filled": 10.0})
    write_trace(path, path / "trace.json.gz", Selection())
    return load_trace(path / "trace.json.gz")


def first(trace: Trace, phase: str, name: str = "") -> dict[str, Any]:
    return next(event for event in trace["traceEvents"] if event["ph"] == phase and name in event["name"])


def overlap(trace: Trace) -> None:
    first(trace, "X", "forward")["dur"] += Decimal("100000.000")


def backwards(trace: Trace) -> None:
    start, end = first(trace, "s"), first(trace, "f")
    start["pid"], start["tid"], start["ts"], end["pid"], end["tid"], end["ts"] = (
        end["pid"], end["tid"], end["ts"] + 1, start["pid"], start["tid"], start["ts"],
    )  # fmt: skip


BREAKS: dict[str, Callable[[Trace], object]] = {
    "two slices overlap": overlap,
    "an arrow that is not from a send": backwards,
    "never ends": lambda trace: trace["traceEvents"].remove(first(trace, "f")),
    "never began": lambda trace: trace["traceEvents"].remove(first(trace, "s")),
    "does not bind": lambda trace: first(trace, "f").pop("bp"),
    "is not inside slices": lambda trace: first(trace, "s").update(ts=Decimal("99999999.000")),
    "two arrows of one id": lambda trace: trace["traceEvents"].insert(0, dict(first(trace, "s"))),
    "an async begin without its end": lambda trace: trace["traceEvents"].remove(first(trace, "e")),
    "an async end that closes nothing": lambda trace: trace["traceEvents"].remove(first(trace, "b")),
    "without a name": lambda trace: first(trace, "X").update(name=""),
    "three decimals": lambda trace: first(trace, "X").update(ts=Decimal("0.5")),
    "a time below zero": lambda trace: first(trace, "X").update(ts=Decimal("-1.000")),
    "no small numbers": lambda trace: first(trace, "X").update(tid=2**32),
    "its id is no number": lambda trace: first(trace, "s").update(id="x"),
    "no known phase": lambda trace: first(trace, "X").update(ph="B"),
    "a counter of no amount": lambda trace: first(trace, "C").update(args={"Mbit/s": "NaN"}),
    "a counter backwards in time": lambda trace: trace["traceEvents"].append(first(trace, "C")),
    "has no name": lambda trace: trace["traceEvents"].remove(first(trace, "M", "thread_name")),
    "has no place": lambda trace: trace["traceEvents"].remove(first(trace, "M", "process_sort_index")),
    "does not say dilation": lambda trace: trace["otherData"].pop("dilation"),
    "a prefill for no request": lambda trace: first(trace, "X", "prefill")["args"].pop("request"),
    "a prefill outside its request": lambda trace: first(trace, "X", "prefill")["args"].update(request=10**6),
    "does not say its number": lambda trace: first(trace, "b", "request ")["args"].clear(),
    "do not stand together": lambda trace: [
        event["args"].update(sort_index=100)
        for event in trace["traceEvents"]
        if event["name"] == "process_sort_index" and event["pid"] == first(trace, "X", "forward")["pid"]
    ],
}


@pytest.mark.parametrize("text", BREAKS)
def test_a_broken_rule_is_reported(trace: Trace, text: str) -> None:
    assert problems(trace) == []
    broken = copy.deepcopy(trace)
    BREAKS[text](broken)
    assert any(text in problem for problem in problems(broken))


def test_an_arrow_that_is_missing_is_reported(trace: Trace) -> None:
    for phase in "sf":
        trace["traceEvents"].remove(first(trace, phase))
    assert [problem.split(",")[0] for problem in problems(trace)] == ["1 transfers have no arrow"]


def test_what_is_not_json_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text('{"traceEvents":[{"ts":NaN}]}', encoding="utf-8")
    with pytest.raises(ValueError, match="NaN is not JSON"):
        load_trace(tmp_path / "trace.json")

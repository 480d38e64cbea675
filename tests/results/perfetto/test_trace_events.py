"""The trace of a program: its ranks' threads, and who kept the others waiting in a collective."""

import copy
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.results.perfetto.spans_on_paper import receive, send, spans
from tests.support.results.programs import ProgramOnPaper, add_program, program_run
from tests.support.results.trace_rules import Slice, load_trace, names_of, problems, slices_of
from wanbed.results.perfetto.counters import BACKLOG, LINK, Steps
from wanbed.results.perfetto.trace_events import (
    Flows,
    Requests,
    carried_text,
    change_events,
    change_steps,
    counter_events,
    flow_events,
    match_transfers,
    request_events,
    requests_of,
    slice_events,
    thousandths_text,
)
from wanbed.results.perfetto.trace_file import write_trace
from wanbed.results.perfetto.tracks import Tracks
from wanbed.results.reading.selection import Selection
from wanbed.results.reading.stored_trial import StoredTrial
from wanbed.results.records.run_store import RunError
from wanbed.results.records.trial_id import TrialId

HOSTILE = ['"quoted" \\', "<script>alert(1)</script>", "\u202eright to left", "\x00\x1f\n", "é☃𝄞", "{}", ""]


def events(column: pa.StringArray) -> list[dict[str, Any]]:
    lines = [str(line) for line in column]
    assert all(line.endswith(",\n") for line in lines)
    return [json.loads(line.removesuffix(",\n"), parse_float=Decimal) for line in lines]


@given(st.lists(st.integers(0, 2**62)))
def test_integers_over_1000_are_written_exactly(values: list[int]) -> None:
    lines = [str(text) for text in thousandths_text(np.array(values, np.int64))]
    assert [Decimal(text) * 1000 for text in lines] == values
    assert all(text[-4] == "." for text in lines)


def test_a_slice_has_all_fields_of_its_span() -> None:
    of = spans(
        {"kind": "backward_weight", "pipeline": 1, "stage": 2, "iteration": 3, "microbatch": 4, "end_ns": 1_000_007},
        {"kind": "all_reduce", "microbatch": -1, "size_bytes": 9},
        send(0, 5, 1005, size_bytes=2**40, peer="west-1"),
        {"kind": "prefill", "microbatch": -1, "request": 12},
    )
    numbers = np.array([7, 8, 9, 10])
    assert events(slice_events(of, numbers, numbers + 10, of.start_ns + 2_000, 0 * numbers)) == [
        {
            "ph": "X", "pid": 7, "tid": 17, "ts": Decimal("2.000"), "dur": Decimal("1000.007"),
            "name": "backward weight 4", "cat": "compute",
            "args": {"pipeline": 1, "stage": 2, "iteration": 3, "microbatch": 4},
        },
        {
            "ph": "X", "pid": 8, "tid": 18, "ts": Decimal("2.000"), "dur": Decimal("0.010"),
            "name": "all-reduce", "cat": "all_reduce",
            "args": {"pipeline": 0, "stage": 0, "iteration": 0, "bytes": 9},
        },
        {
            "ph": "X", "pid": 9, "tid": 19, "ts": Decimal("2.005"), "dur": Decimal("1.000"),
            "name": "send activation 0", "cat": "send",
            "args": {"pipeline": 0, "stage": 0, "iteration": 0, "microbatch": 0, "bytes": 2**40, "peer": "west-1"},
        },
        {
            "ph": "X", "pid": 10, "tid": 20, "ts": Decimal("2.000"), "dur": Decimal("0.010"),
            "name": "prefill of request 12", "cat": "prefill",
            "args": {"pipeline": 0, "stage": 0, "iteration": 0, "request": 12},
        },
    ]  # fmt: skip


def test_a_slice_has_the_contended_time_of_its_span() -> None:
    of = spans({"start_ns": 0, "end_ns": 5_000}, {"start_ns": 9_000, "end_ns": 10_000})
    shared, alone = events(slice_events(of, of.gpu, of.gpu, of.start_ns, np.array([1_250, 0])))
    assert shared["args"]["contended_us"] == Decimal("1.250")
    assert "contended_us" not in alone["args"]


@pytest.mark.parametrize("name", HOSTILE)
def test_names_survive_whatever_is_in_them(name: str) -> None:
    of = spans(send(0, 5, 10, peer=name))
    (slice_,) = events(slice_events(of, of.gpu + 1, of.gpu + 1, of.start_ns, 0 * of.gpu))
    assert slice_["args"]["peer"] == name
    steps = Steps(LINK, name, name, BACKLOG, np.array([0]), np.array([1]))
    (counter,) = events(counter_events(steps, 2, name, 0))
    assert counter == {"ph": "C", "pid": 2, "ts": 0, "name": name, "args": {"bytes": Decimal("0.001")}}


def test_the_beginnings_of_arrows_are_read_before_their_ends() -> None:
    of = spans(send(0, 5, 10), receive(1, 7, 10), send(0, 8, 10, microbatch=1), receive(1, 8, 10, microbatch=1))
    numbers = np.array([1, 2, 3, 4])
    begins, ends = flow_events(
        match_transfers(of), of.tensor, numbers, numbers + 10, category="transfer", first_id=9, shift_ns=1_000
    )
    assert [(each["ph"], each["id"], each["pid"], each["tid"], each["ts"]) for each in events(begins)] == [
        ("s", 9, 1, 11, Decimal("1.006")),
        ("s", 10, 3, 13, Decimal("1.008")),
    ]
    assert [(each["ph"], each["bp"], each["id"], each["pid"], each["ts"]) for each in events(ends)] == [
        ("f", "e", 9, 2, Decimal("1.007")),
        ("f", "e", 10, 4, Decimal("1.008")),
    ]
    assert {(each["cat"], each["name"]) for each in events(begins) + events(ends)} == {("transfer", "activation")}


def test_no_spans_make_no_text() -> None:
    of = spans()
    assert len(slice_events(of, of.gpu, of.gpu, of.start_ns, of.gpu)) == 0


def test_a_slice_names_its_virtual_stage() -> None:
    of = spans({"microbatch": 3, "virtual_stage": 5}, {"kind": "optimizer", "microbatch": -1})
    zeros = np.zeros(2, np.int64)
    first, second = events(slice_events(of, zeros, zeros, of.start_ns, zeros))
    assert (first["name"], first["args"]["virtual_stage"]) == ("forward 3 of virtual stage 5", 5)
    assert (second["name"], "virtual_stage" in second["args"]) == ("optimizer", False)


GRADIENT = {"tensor": "gradient"}


def pairs(flows: Flows) -> list[tuple[int, int]]:
    return [(int(one), int(other)) for one, other in zip(flows.send, flows.receive, strict=True)]


def test_an_activation_goes_to_the_next_stage_and_a_gradient_to_the_one_before() -> None:
    of = spans(
        receive(2, 15, 30),
        send(1, 10, 20),
        receive(0, 40, 50),
        send(1, 10, 20, **GRADIENT),
        receive(0, 40, 50, **GRADIENT),
    )
    assert pairs(match_transfers(of)) == [(1, 0), (3, 4)]


@pytest.mark.parametrize("field", ["pipeline", "iteration", "microbatch"])
def test_a_receive_of_another_tensor_is_not_matched(field: str) -> None:
    of = spans(send(0, 10, 20), receive(1, 15, 30, **{field: 1}))
    assert pairs(match_transfers(of)) == []


def test_a_send_without_its_receive_gets_no_arrow_nor_the_reverse() -> None:
    of = spans(send(0, 10, 20), receive(1, 15, 30, microbatch=1), send(0, 30, 40, microbatch=2))
    assert pairs(match_transfers(of)) == []


def test_a_transfer_of_an_unknown_tensor_gets_no_arrow() -> None:
    assert pairs(match_transfers(spans(send(0, 10, 20, tensor=""), receive(1, 15, 30, tensor="")))) == []


def test_a_message_between_any_two_ranks_gets_its_arrow() -> None:
    of = spans(
        send(0, 10, 20, tensor="0,3", microbatch=4),
        send(0, 30, 40, tensor="0,3"),
        send(0, 10, 20, tensor="0,2"),
        receive(3, 35, 50, tensor="0,3"),
        receive(3, 15, 30, tensor="0,3"),
        receive(2, 15, 30, tensor="0,2", iteration=1),
    )
    assert pairs(match_transfers(of)) == [(0, 4), (1, 3)]


def test_the_text_of_an_arrow_says_what_is_known_of_its_message() -> None:
    assert [carried_text(tensor) for tensor in ("gradient", "0,3", "")] == ["gradient", "from rank 0 to 3", ""]


def test_something_sent_twice_is_received_in_the_order_of_sending() -> None:
    of = spans(receive(1, 70, 80), receive(1, 20, 30), send(0, 10, 15), send(0, 60, 65), send(0, 90, 95))
    assert pairs(match_transfers(of)) == [(2, 1), (3, 0)]


def test_nothing_arrives_before_it_was_sent() -> None:
    assert pairs(match_transfers(spans(send(0, 10, 20), receive(1, 9, 30)))) == []


@pytest.mark.parametrize(
    ("sent", "received", "leaves_ns"),
    [((10, 20), (30, 40), 11), ((10, 20), (11, 40), 11), ((10, 20), (10, 40), 10), ((10, 11), (12, 13), 10),
     ((10, 10), (10, 10), 10)],
)  # fmt: skip
def test_an_arrow_leaves_inside_its_send_where_it_can(
    sent: tuple[int, int], received: tuple[int, int], leaves_ns: int
) -> None:
    flows = match_transfers(spans(send(0, *sent), receive(1, *received)))
    assert (flows.leaves_ns.tolist(), flows.arrives_ns.tolist()) == ([leaves_ns], [received[0]])


def test_numbers_too_large_to_be_combined_are_distinguished_all_the_same() -> None:
    largest = 2**31 - 1
    far = {"pipeline": largest, "iteration": largest, "microbatch": largest}
    of = spans(
        send(0, 10, 20), send(0, 10, 20, **far), receive(1, 15, 30, **far), receive(1, 15, 30, **far | {"pipeline": 0})
    )
    assert pairs(match_transfers(of)) == [(1, 2)]


def test_a_trial_without_transfers_has_no_arrows() -> None:
    flows = match_transfers(spans({"kind": "forward"}))
    assert all(column.dtype == np.int64 and len(column) == 0 for column in flows)


def test_between_virtual_stages_arrows_follow_the_model_and_not_the_stages() -> None:
    # A V over two stages: stage 1 has virtual stages 1 and 2, stage 0 has 0 and 3.
    of = spans(
        send(0, 10, 20, virtual_stage=0),
        receive(1, 25, 30, virtual_stage=1),
        send(1, 10, 20, virtual_stage=2),
        receive(0, 25, 30, virtual_stage=3),
    )
    assert pairs(match_transfers(of)) == [(0, 1), (2, 3)]


ROW: dict[str, Any] = {
    "request": 0,
    "datacenter": "east",
    "prompt_tokens": 100,
    "output_tokens": 10,
    "outcome": "admitted",
    "reason": "",
    "was_held": False,
    "group": 0,
    "chunks": 1,
    "arrival_ns": 1_000,
    "started_ns": 2_000,
    "prefilled_ns": 5_000,
    "kv_moved_ns": 6_000,
    "kv_bytes": 7,
}

NOTHING_KNOWN = {"started_ns": None, "prefilled_ns": None, "kv_moved_ns": None, "group": -1}


def request_pairs(*rows: dict[str, Any], begin_ns: int = 0, end_ns: int = 10_000) -> list[tuple[str, str, int]]:
    """Phase, name and time of every half; each row says what differs from ``ROW``."""
    events = request_events(Requests(tuple({**ROW, **row} for row in rows)), Tracks(), begin_ns, end_ns, 0)
    read = [json.loads(event.removesuffix(",\n"), parse_float=Decimal) for event in events]
    return [(event["ph"], event["name"], int(event["ts"] * 1000)) for event in read]


def test_an_admitted_request_lasts_until_its_kv_cache_has_moved_and_has_its_phases_inside() -> None:
    assert request_pairs({}) == [
        ("b", "admitted", 1_000),
        ("b", "request 0", 1_000),
        ("b", "queue", 1_000),
        ("e", "queue", 2_000),
        ("b", "prefill", 2_000),
        ("e", "prefill", 5_000),
        ("b", "KV transfer", 5_000),
        ("e", "KV transfer", 6_000),
        ("e", "request 0", 6_000),
        ("e", "admitted", 6_000),
    ]


def test_a_rejected_request_has_no_length_and_one_that_is_held_lasts_until_the_end() -> None:
    rejected, held = ({**NOTHING_KNOWN, "outcome": outcome} for outcome in ("rejected", "held"))
    assert request_pairs(rejected)[1:3] == [("b", "request 0", 1_000), ("e", "request 0", 1_000)]
    assert request_pairs(held)[1:3] == [("b", "request 0", 1_000), ("e", "request 0", 10_000)]


def test_requests_are_cut_to_the_selected_iteration() -> None:
    later = {"request": 1, "arrival_ns": 9_000, "started_ns": 9_100, "prefilled_ns": 9_200, "kv_moved_ns": 9_300}
    assert request_pairs({}, later, begin_ns=3_000, end_ns=5_500)[1:-1] == [
        ("b", "request 0", 3_000),
        ("b", "prefill", 3_000),
        ("e", "prefill", 5_000),
        ("b", "KV transfer", 5_000),
        ("e", "KV transfer", 5_500),
        ("e", "request 0", 5_500),
    ]


def test_outcomes_have_tracks_of_their_own_and_requests_at_one_time_lanes() -> None:
    rows = [{**ROW, "request": number} for number in range(2)]
    rows.append({**ROW, **NOTHING_KNOWN, "request": 2, "outcome": "rejected", "reason": "slo"})
    times = {"arrival_ns": 7_000, "started_ns": 7_000, "prefilled_ns": 8_000, "kv_moved_ns": 9_000}
    rows.append({**ROW, "request": 3, **times})
    events = [
        json.loads(event.removesuffix(",\n")) for event in request_events(Requests(tuple(rows)), Tracks(), 0, 10_000, 0)
    ]
    begins = {event["name"]: event for event in events if event["ph"] == "b" and event["name"].startswith("request")}
    lane_of = {name: event["id2"]["local"] for name, event in begins.items()}
    assert lane_of["request 0"] == lane_of["request 3"] != lane_of["request 1"]
    assert lane_of["request 2"] not in (lane_of["request 0"], lane_of["request 1"])
    assert begins["request 2"]["args"]["reason"] == "slo"
    assert begins["request 0"]["args"]["ttft_ns"] == 5_000


def test_a_damaged_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "prefill_requests.parquet").write_text("nothing of the kind")
    with pytest.raises(RunError, match=r"prefill_requests\.parquet: not a Parquet file"):
        requests_of(StoredTrial(TrialId(0, "gpipe", 0), tmp_path, {}, {}))


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


MS = 1_000_000


def row(due_ms: int, late_ms: int | None = 0, **values: Any) -> dict[str, Any]:
    base = {"up": True, "latency_ns": 20 * MS, "rate_bps": None, "node_pair_rate_bps": 5_000_000, "jitter_ns": 0}
    times = {"due_ns": due_ms * MS, "applied_ns": None if late_ms is None else (due_ms + late_ms) * MS}
    return {"source": "east", "destination": "west", **base, "loss": 0.0, **times, **values}


ROWS = [row(0), row(100, 2, latency_ns=40 * MS), row(200, up=False), row(300, None)]


def test_counters_step_when_a_change_was_applied_and_a_link_that_is_down_loses_all() -> None:
    found = {each.quantity.name: each for each in change_steps(ROWS, 0, 400 * MS)}
    assert set(found) == {"configured rate of a node pair", "configured latency", "configured loss"}
    latency, loss = found["configured latency"], found["configured loss"]
    assert (latency.time_ns // MS).tolist() == [0, 102, 200, 400]
    assert latency.thousandths.tolist() == [20_000, 40_000, 20_000, 0]
    assert loss.thousandths.tolist() == [0, 100_000, 0]


def test_every_change_in_the_range_is_an_instant_that_says_what_changed() -> None:
    events = [json.loads(line.rstrip(",\n")) for line in change_events(ROWS, 2, 0, 250 * MS, 1000 * MS)]
    assert [(event["name"], event["ts"]) for event in events] == [
        ("east → west: latency 40 ms", 1_102_000.0),
        ("east → west: down", 1_200_000.0),
    ]
    assert events[0]["args"] == {"due_us": 1_100_000.0, "applied_after_us": 2000.0}
    assert {(event["ph"], event["s"], event["pid"]) for event in events} == {("i", "p", 2)}

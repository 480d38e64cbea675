import json
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.results.perfetto.spans_on_paper import receive, send, spans
from wanbed.results.perfetto.counters import BACKLOG, LINK, Steps
from wanbed.results.perfetto.flows import match_transfers
from wanbed.results.perfetto.trace_events import counter_events, flow_events, slice_events, thousandths_text

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

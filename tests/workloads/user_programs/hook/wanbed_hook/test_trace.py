import json
from pathlib import Path
from typing import Any

import pytest

from wanbed.workloads.user_programs.hook.wanbed_hook.trace import CLOCK_MARK, Event, read_trace

BASE_NS = 1_700_000_000_000_000_000


def written(folder: Path, entries: list[dict[str, Any]], **contents: object) -> str:
    path = folder / "trace.json"
    path.write_text(json.dumps({"baseTimeNanoseconds": BASE_NS, "traceEvents": entries, **contents}), encoding="utf-8")
    return str(path)


def mark(at_us: float) -> dict[str, Any]:
    return {"ph": "X", "cat": "user_annotation", "name": CLOCK_MARK, "tid": 1, "ts": at_us, "dur": 0.5, "args": {}}


def test_events_are_on_the_monotonic_clock_in_the_order_of_their_starts(tmp_path: Path) -> None:
    entries = [
        {"ph": "M", "name": "process_name"},
        {
            "ph": "X",
            "cat": "cpu_op",
            "name": "aten::mm",
            "tid": 4,
            "ts": 20.5,
            "dur": 1.25,
            "args": {"Input Dims": [[2]]},
        },
        {"ph": "X", "cat": "kernel", "name": "gemm", "tid": 7, "ts": 15, "dur": 2},
        mark(10),
        mark(30),
    ]
    groups = {"pg_config": [{"pg_name": "0", "ranks": [0, 1]}]}
    trace = read_trace(written(tmp_path, entries, distributedInfo=groups), [(990, 1_010)], [(20_990, 21_010)])
    assert trace.events == (
        Event("kernel", "gemm", 7, 6_000, 8_000, {}),
        Event("cpu_op", "aten::mm", 4, 11_500, 12_750, {"Input Dims": [[2]]}),
    )
    assert trace.groups == {"0": (0, 1)}
    assert trace.clock_error_ns == 10


def test_groups_as_older_versions_write_them(tmp_path: Path) -> None:
    groups = {"pg_config": {"0": {"pg_desc": "default_pg", "ranks": [0, 1, 2]}}}
    trace = read_trace(written(tmp_path, [mark(1), mark(2)], distributedInfo=groups), [(0, 1)], [(1_000, 1_001)])
    assert trace.groups == {"0": (0, 1, 2)}


def test_a_trace_without_its_marks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has 1 marks of its clock, made were 2"):
        read_trace(written(tmp_path, [mark(1)]), [(0, 1)], [(2, 3)])

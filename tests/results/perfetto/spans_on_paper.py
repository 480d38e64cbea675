"""Spans written down in a test, as a trial's table gives them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from wanbed.results.perfetto.trial_tables import Spans, Texts

FIELDS: dict[str, Any] = {
    "rank": 0,
    "host": "east-0",
    "datacenter": "east",
    "gpu": 0,
    "pipeline": 0,
    "stage": 0,
    "iteration": 0,
    "microbatch": 0,
    "kind": "forward",
    "start_ns": 0,
    "end_ns": 10,
    "size_bytes": 0,
    "peer": "",
    "tensor": "",
    "request": -1,
    "virtual_stage": -1,
}


def texts(values: Sequence[str]) -> Texts:
    there = tuple(dict.fromkeys(values))
    return Texts(np.array([there.index(value) for value in values], np.int64), there)


def spans(*rows: dict[str, Any]) -> Spans:
    """Each row says what differs from ``FIELDS``."""
    columns = {name: [{**FIELDS, **row}[name] for row in rows] for name in FIELDS}
    return Spans(
        **{
            name: texts(values) if isinstance(FIELDS[name], str) else np.array(values, np.int64)
            for name, values in columns.items()
        }
    )


def send(stage: int, start_ns: int, end_ns: int, **more: Any) -> dict[str, Any]:
    times = {"start_ns": start_ns, "end_ns": end_ns}
    return {"kind": "send", "tensor": "activation", "stage": stage, "host": f"h{stage}", **times, **more}


def receive(stage: int, start_ns: int, end_ns: int, **more: Any) -> dict[str, Any]:
    return {**send(stage, start_ns, end_ns), "kind": "receive", **more}

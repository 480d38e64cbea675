"""What spans show of slow start, contention and strict order, and what they do not show."""

from typing import Any

import pandas as pd

from wanbed.results.report.plan_causes import plan_causes

MS = 1_000_000
NOTHING = ("no cause shows in the spans",)


def span(kind: str, stage: int, microbatch: int, start_ms: int, end_ms: int, **more: Any) -> dict[str, Any]:
    return {
        "host": f"{'east' if stage == 0 else 'west'}-{more.get('pipeline', 0)}",
        "datacenter": "east" if stage == 0 else "west",
        "gpu": 0,
        "pipeline": 0,
        "stage": stage,
        "iteration": 0,
        "microbatch": microbatch,
        "kind": kind,
        "tensor": "activation" if kind in {"send", "receive"} else "",
        "start_ns": start_ms * MS,
        "end_ns": end_ms * MS,
        **more,
    }


def transfer(microbatch: int, start_ms: int, took_ms: int, pipeline: int = 0) -> list[dict[str, Any]]:
    there_ms = start_ms + took_ms
    return [
        span("send", 0, microbatch, start_ms, there_ms - 10, pipeline=pipeline),
        span("receive", 1, microbatch, start_ms + 10, there_ms, pipeline=pipeline),
        # Used as soon as it is there.
        span("forward", 1, microbatch, there_ms, there_ms + 1, pipeline=pipeline),
    ]


def causes(*spans: dict[str, Any], transfer_s: float, **facts: Any) -> tuple[str, ...]:
    return plan_causes({"plan": {"transfer_s": [transfer_s]}, **facts}, pd.DataFrame(spans))


def test_transfers_as_planned_are_no_cause() -> None:
    assert causes(*transfer(0, 0, 100), *transfer(1, 100, 100), transfer_s=0.1) == NOTHING


def test_slow_start_is_named_where_transfers_after_a_pause_take_longer() -> None:
    spans = [*transfer(0, 0, 100), *transfer(1, 100, 100), *transfer(2, 1000, 300), *transfer(3, 1300, 100)]
    (text,) = causes(*spans, transfer_s=0.1)
    assert "slow start" in text
    assert "300" in text
    assert "contention" not in text


def test_transfers_that_are_slow_without_a_pause_started_no_slower() -> None:
    (text,) = causes(*transfer(0, 0, 300), *transfer(1, 300, 300), *transfer(2, 600, 300), transfer_s=0.1)
    assert "slow start" not in text
    assert "contention" not in text


def test_contention_is_named_if_another_dp_cell_sent_between_the_same_datacenters() -> None:
    spans = [*transfer(0, 0, 200), *transfer(0, 50, 200, pipeline=1)]
    (text,) = causes(*spans, transfer_s=0.1)
    assert "contention" in text
    (of_one_cell,) = causes(*spans, transfer_s=0.1, pipelines_per_cell=2)
    assert "contention" not in of_one_cell


def test_strict_order_is_named_if_a_gpu_was_idle_though_a_message_had_arrived() -> None:
    early = [*transfer(0, 0, 100)[:2], *transfer(1, 100, 100)]
    late = span("forward", 1, 0, 400, 401)
    (text,) = causes(*early, late, transfer_s=0.1)
    assert text.startswith("strict order: GPUs were idle for ")

"""A trace has counters of what each link was configured to, and an instant for each change."""

import json
from typing import Any

from wanbed.results.perfetto.link_changes import change_events, change_steps

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

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from wanbed.results.perfetto.request_events import Requests, request_events, requests_of
from wanbed.results.perfetto.tracks import Tracks
from wanbed.results.reading.stored_trial import StoredTrial
from wanbed.results.records.run_store import RunError
from wanbed.results.records.trial_id import TrialId

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


def pairs(*rows: dict[str, Any], begin_ns: int = 0, end_ns: int = 10_000) -> list[tuple[str, str, int]]:
    """Phase, name and time of every half; each row says what differs from ``ROW``."""
    events = request_events(Requests(tuple({**ROW, **row} for row in rows)), Tracks(), begin_ns, end_ns, 0)
    read = [json.loads(event.removesuffix(",\n"), parse_float=Decimal) for event in events]
    return [(event["ph"], event["name"], int(event["ts"] * 1000)) for event in read]


def test_an_admitted_request_lasts_until_its_kv_cache_has_moved_and_has_its_phases_inside() -> None:
    assert pairs({}) == [
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
    assert pairs(rejected)[1:3] == [("b", "request 0", 1_000), ("e", "request 0", 1_000)]
    assert pairs(held)[1:3] == [("b", "request 0", 1_000), ("e", "request 0", 10_000)]


def test_requests_are_cut_to_the_selected_iteration() -> None:
    later = {"request": 1, "arrival_ns": 9_000, "started_ns": 9_100, "prefilled_ns": 9_200, "kv_moved_ns": 9_300}
    assert pairs({}, later, begin_ns=3_000, end_ns=5_500)[1:-1] == [
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

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.results.perfetto.spans_on_paper import spans
from wanbed.results.perfetto import tracks as tracks_module
from wanbed.results.perfetto.counters import BACKLOG, LINK, NODE_PAIR, THROUGHPUT
from wanbed.results.perfetto.tracks import Tracks, assign_lanes
from wanbed.results.perfetto.trial_tables import Spans
from wanbed.results.records.run_store import RunError


def host(datacenter: str, name: str, stage: int, **more: Any) -> dict[str, Any]:
    return {"datacenter": datacenter, "host": name, "stage": stage, **more}


def named(tracks: Tracks, what: str) -> list[str]:
    """Names of processes or threads by their place."""
    events = list(tracks.metadata())
    places = {
        (event["pid"], event.get("tid")): event["args"]["sort_index"]
        for event in events
        if event["name"] == f"{what}_sort_index"
    }
    names = {
        (event["pid"], event.get("tid")): event["args"]["name"] for event in events if event["name"] == f"{what}_name"
    }
    assert names.keys() == places.keys()
    return [
        names[number] for number in sorted(places, key=lambda number: (number[0] if number[1] else 0, places[number]))
    ]


def threads_of(of: Spans) -> list[str]:
    tracks = Tracks()
    process, thread = tracks.of_spans(of)
    names = {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in tracks.metadata()
        if event["name"] == "thread_name"
    }
    return [names[int(one), int(other)] for one, other in zip(process, thread, strict=True)]


def test_hosts_stand_by_datacenter_in_the_order_of_stages() -> None:
    tracks = Tracks()
    tracks.of_spans(spans(host("west", "w0", 2), host("east", "e1", 1), host("east", "e0", 0), host("west", "w1", 3)))
    assert named(tracks, "process") == ["trials", "east / e0", "east / e1", "west / w0", "west / w1"]


def test_a_host_of_a_later_trial_is_grouped_with_its_datacenter() -> None:
    tracks = Tracks()
    tracks.of_spans(spans(host("east", "e0", 0), host("west", "w0", 1)))
    process, _ = tracks.of_spans(spans(host("east", "e9", 0), host("west", "w0", 1)))
    assert named(tracks, "process") == ["trials", "east / e0", "east / e9", "west / w0"]
    assert len(set(process.tolist())) == 2


def test_two_datacenters_may_have_hosts_of_one_name() -> None:
    process, _ = Tracks().of_spans(spans(host("east", "h", 0), host("west", "h", 1)))
    assert process[0] != process[1]


def test_every_gpu_has_threads_for_its_work_and_for_what_it_sends_and_receives() -> None:
    of = spans(
        {"kind": "receive"},
        {"kind": "send", "gpu": 1},
        {"kind": "forward"},
        {"kind": "send", "start_ns": 5, "end_ns": 15, "gpu": 1},
        {"kind": "all_reduce", "start_ns": 10, "end_ns": 15},
        {"kind": "send", "start_ns": 10, "end_ns": 15, "gpu": 1},
    )
    assert threads_of(of) == [
        "GPU 0 receives 1",
        "GPU 1 sends 1",
        "GPU 0",
        "GPU 1 sends 2",
        "GPU 0",
        "GPU 1 sends 1",
    ]


def test_more_at_the_same_time_than_there_are_threads_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracks_module, "_GROUP", 2)
    assert threads_of(spans({"kind": "send"}, {"kind": "send"})) == ["GPU 0 sends 1", "GPU 0 sends 2"]
    with pytest.raises(RunError, match="a GPU has more than 2 spans at the same time"):
        threads_of(spans({"kind": "send"}, {"kind": "send"}, {"kind": "send"}))


def test_all_reduces_that_overlap_computation_stand_apart_from_it() -> None:
    of = spans(
        {"kind": "backward", "start_ns": 0, "end_ns": 10},
        {"kind": "all_reduce", "start_ns": 9, "end_ns": 20},
        {"kind": "all_reduce", "start_ns": 15, "end_ns": 30},
        {"kind": "all_reduce", "start_ns": 15, "end_ns": 30, "gpu": 1},
    )
    assert threads_of(of) == ["GPU 0", "GPU 0 collectives 1", "GPU 0 collectives 2", "GPU 1"]


def test_computation_that_overlaps_itself_is_not_lost() -> None:
    assert threads_of(spans({}, {"kind": "backward"})) == ["GPU 0", "GPU 0 (2)"]


def test_the_threads_of_a_gpu_keep_their_order_whenever_they_appear() -> None:
    tracks = Tracks()
    tracks.of_spans(spans({}, {"kind": "receive"}, {"kind": "send"}, {"gpu": 1}))
    tracks.of_spans(spans({"kind": "send"}, {"kind": "send"}))
    expected = ["GPU 0", "GPU 0 sends 1", "GPU 0 sends 2", "GPU 0 receives 1", "GPU 1"]
    assert named(tracks, "thread") == ["trial", *expected]
    numbers = {event["args"]["name"]: event["tid"] for event in tracks.metadata() if event["name"] == "thread_name"}
    assert sorted(expected, key=lambda name: numbers[name]) == expected


def test_counters_whose_names_would_be_the_same_get_different_ones() -> None:
    tracks = Tracks()
    one = tracks.counter(LINK, "a", "b → c", THROUGHPUT)
    other = tracks.counter(LINK, "a → b", "c", THROUGHPUT)
    assert one == (tracks.links, "a → b → c throughput")
    assert other == (tracks.links, "a → b → c throughput'")
    assert tracks.counter(LINK, "a", "b → c", THROUGHPUT) == one
    assert tracks.counter(LINK, "a", "b", BACKLOG) == (tracks.links, "a → b backlog")
    assert tracks.counter(NODE_PAIR, "a", "b", THROUGHPUT) == (tracks.node_pairs, "a → b throughput")


def test_what_has_no_counters_is_not_named() -> None:
    tracks = Tracks()
    assert named(tracks, "process") == ["trials"]
    tracks.counter(NODE_PAIR, "a", "b", THROUGHPUT)
    assert named(tracks, "process") == ["trials", "pairs of hosts"]


def test_prefills_stand_with_the_computation_unless_they_overlap_it() -> None:
    bubble = spans(
        {"kind": "forward", "start_ns": 0, "end_ns": 10},
        {"kind": "prefill", "start_ns": 10, "end_ns": 20, "request": 3},
        {"kind": "all_reduce", "start_ns": 15, "end_ns": 30},
        {"kind": "forward", "start_ns": 20, "end_ns": 30},
    )
    assert threads_of(bubble) == ["GPU 0", "GPU 0", "GPU 0 collectives 1", "GPU 0"]
    beside = spans(
        {"kind": "forward", "start_ns": 0, "end_ns": 10},
        {"kind": "prefill", "start_ns": 9, "end_ns": 20, "request": 3},
        {"kind": "all_reduce", "start_ns": 15, "end_ns": 30},
        {"kind": "prefill", "start_ns": 9, "end_ns": 20, "request": 4, "gpu": 1},
    )
    assert threads_of(beside) == ["GPU 0", "GPU 0 prefills 1", "GPU 0", "GPU 1"]


def test_hosts_of_a_pool_come_after_those_that_train() -> None:
    tracks = Tracks()
    pool = {"kind": "prefill", "pipeline": -1}
    tracks.of_spans(
        spans(host("west", "w0", 1), host("west", "serving", -1, **pool), host("east", "e0", 0), host("west", "w1", 2))
    )
    assert named(tracks, "process") == ["trials", "east / e0", "west / w0", "west / w1", "west / serving"]


def test_requests_come_before_the_hosts_in_the_trace() -> None:
    tracks = Tracks()
    tracks.of_spans(spans(host("east", "e0", 0)))
    assert tracks.of_requests("east") == tracks.of_requests("east") != tracks.of_requests("west")
    assert named(tracks, "process") == ["trials", "requests to east", "requests to west", "east / e0"]


SPANS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(0, 12)), max_size=40)


def lanes_of(spans: list[tuple[int, int, int]]) -> list[int]:
    place, start, length = (np.array([span[field] for span in spans], np.int64) for field in range(3))
    return [int(lane) for lane in assign_lanes(place, start, start + length)]


def moments(start: int, length: int) -> set[int]:
    return set(range(start, start + max(length, 1)))


@given(SPANS)
def test_no_two_spans_of_a_lane_have_a_moment_in_common(spans: list[tuple[int, int, int]]) -> None:
    taken: dict[tuple[int, int], set[int]] = {}
    for (place, start, length), lane in zip(spans, lanes_of(spans), strict=True):
        own = taken.setdefault((place, lane), set())
        assert not own & moments(start, length)
        own |= moments(start, length)


@given(SPANS)
def test_a_place_has_as_many_lanes_as_spans_at_the_same_time_and_no_more(spans: list[tuple[int, int, int]]) -> None:
    lanes = lanes_of(spans)
    for place in {span[0] for span in spans}:
        own = [moments(start, length) for where, start, length in spans if where == place]
        most = max(sum(moment in each for each in own) for moment in set().union(*own))
        assert {lane for lane, span in zip(lanes, spans, strict=True) if span[0] == place} == set(range(most))


def test_what_does_not_overlap_stays_on_the_first_lane_in_whatever_order_it_is_given() -> None:
    assert lanes_of([(0, 20, 10), (0, 0, 10), (0, 10, 10), (1, 5, 10)]) == [0, 0, 0, 0]


def test_a_lane_that_is_free_again_is_taken_again() -> None:
    assert lanes_of([(0, 0, 10), (0, 5, 10), (0, 10, 10), (0, 12, 1), (0, 15, 5)]) == [0, 1, 0, 2, 1]


def test_spans_without_length_at_one_moment_stand_on_lanes_of_their_own() -> None:
    assert lanes_of([(0, 5, 0), (0, 5, 0), (0, 5, 3), (0, 0, 5)]) == [0, 1, 2, 0]

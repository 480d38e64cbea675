"""Bytes sent between datacenters are on the counters of links, or went around them; a job keeps its own samples."""

from pathlib import Path

import pytest

from tests.support.runner.two_jobs import two_jobs
from wanbed.results.reading.validity import WaysAround
from wanbed.results.records.schema import LinkSample
from wanbed.results.records.span_log import RankPlace, Span, SpanLogContents
from wanbed.results.records.trial_columns import TrialCounters
from wanbed.results.records.trial_tables import LINK_TABLE, TCP_TABLE
from wanbed.runner.companions.telemetry.on_hosts.telemetry import carried_facts, rows_of_job, sent_bytes
from wanbed.runner.planner.experiment_file import parse_experiment

HOMES = {"east-0": "east", "east-1": "east", "west-0": "west", "west-1": "west"}

MB = 10**6


def log(rank: int, host: str, *spans: Span) -> SpanLogContents:
    return SpanLogContents(RankPlace(rank, host, HOMES[host], 0, 0, 0), spans, complete=True)


def send(peer: str, size_bytes: int) -> Span:
    return Span("send", 0, 0, 0, 1, size_bytes, peer, "activation")


def collective(kind: str, size_bytes: int, ranks: str) -> Span:
    return Span(kind, 0, 0, 0, 1, size_bytes, "", ranks)


def carried(**wire_bytes: int) -> list[LinkSample]:
    return [
        LinkSample(time_ns, "link", *ends.split("_"), size_bytes * time_ns // 9, 1, 0, 0)
        for ends, size_bytes in wire_bytes.items()
        for time_ns in (0, 9)
    ]


def test_messages_between_datacenters_are_known_and_others_are_not_asked_for() -> None:
    sent = sent_bytes([log(0, "east-0", send("east-1", MB), send("west-0", 2 * MB))], HOMES)
    assert sent == {("east", "west"): 2 * MB, ("east", "elsewhere"): 2 * MB}


def test_a_link_that_carried_what_was_sent_and_its_headers_is_fine() -> None:
    logs = [log(0, "east-0", send("west-0", 10 * MB))]
    facts = carried_facts(logs, HOMES, carried(east_west=10_400_000, west_east=300_000))
    assert facts == {"carried": {"sent_bytes": 10 * MB, "carried_bytes": 10_700_000, "short": []}}
    assert not WaysAround.of(facts).used


def test_a_link_that_carried_less_than_was_sent_marks_the_trial() -> None:
    logs = [log(0, "east-0", send("west-0", 10 * MB))]
    facts = carried_facts(logs, HOMES, carried(east_west=9 * MB, west_east=0))
    assert facts["carried"]["short"] == [
        ["east", "elsewhere", 10 * MB, 9 * MB],
        ["east", "west", 10 * MB, 9 * MB],
    ]
    ways = WaysAround.of(facts)
    assert ways.used
    assert ways.sentence == (
        "bytes went around the emulated network: east to elsewhere carried 9.0 MB of 10.0 MB that were sent"
    )


def test_each_datacenter_sends_at_least_its_part_of_a_sum_whatever_the_algorithm() -> None:
    group = "0,1,2,3"
    logs = [log(rank, host, collective("all_reduce", 4 * MB, group)) for rank, host in enumerate(HOMES)]
    assert sent_bytes(logs, HOMES) == {("east", "elsewhere"): 4 * MB, ("west", "elsewhere"): 4 * MB}
    gathered = [log(rank, host, collective("all_gather", MB, group)) for rank, host in enumerate(HOMES)]
    assert sent_bytes(gathered, HOMES) == {("east", "elsewhere"): 2 * MB, ("west", "elsewhere"): 2 * MB}
    scattered = [log(rank, host, collective("reduce_scatter", 4 * MB, group)) for rank, host in enumerate(HOMES)]
    assert sent_bytes(scattered, HOMES) == {("east", "elsewhere"): 2 * MB, ("west", "elsewhere"): 2 * MB}


def test_a_sum_inside_a_datacenter_needs_no_link() -> None:
    logs = [log(rank, host, collective("all_reduce", MB, "0,1")) for rank, host in enumerate(["east-0", "east-1"])]
    assert sent_bytes(logs, HOMES) == {}


def test_without_counters_nothing_is_said() -> None:
    assert carried_facts([log(0, "east-0", send("west-0", MB))], HOMES, []) == {}


def test_what_rdma_devices_sent_marks_the_trial_beyond_their_own_upkeep() -> None:
    assert not WaysAround.of({"rdma_sent_bytes": {"m mlx5_0/1": 4000}}).used
    ways = WaysAround.of({"rdma_sent_bytes": {"m mlx5_0/1": 3 * MB, "n mlx5_0/1": 3 * MB}})
    assert ways.used
    assert ways.sentence == "bytes went around the emulated network: RDMA devices sent 6.0 MB"


(POINT,) = parse_experiment(two_jobs(), "file", Path()).points()

OURS = {"east-0", "east-1", "west-0", "west-1"}


def row(scope: str, source: str, destination: str, wire_bytes: int, packets: int | None = 1) -> LinkSample:
    return LinkSample(5, scope, source, destination, wire_bytes, packets, 0, 0)


def test_a_job_keeps_its_node_pairs_and_links_are_their_sum() -> None:
    rows = [
        row("link", "east", "west", 100, 10),
        row("node_pair", "east-0", "west-0", 30, 3),
        row("node_pair", "east-1", "west-1", 20, 2),
        row("node_pair", "east-2", "west-2", 50, 5),
        row("link", "west", "east", 40, 4),
    ]
    kept = rows_of_job({LINK_TABLE: rows}, OURS, POINT.topology)[LINK_TABLE]
    assert list(kept) == [
        row("link", "east", "west", 50, 5),
        row("link", "west", "east", 0, 0),
        row("node_pair", "east-0", "west-0", 30, 3),
        row("node_pair", "east-1", "west-1", 20, 2),
    ]


def test_packets_that_were_not_counted_stay_unknown() -> None:
    rows = [row("link", "east", "west", 9, None), row("node_pair", "east-0", "west-0", 9, None)]
    link, _ = rows_of_job({LINK_TABLE: rows}, OURS, POINT.topology)[LINK_TABLE]
    assert link.packets is None


def test_columns_of_a_simulation_are_refused() -> None:
    columns = TrialCounters.__new__(TrialCounters)
    with pytest.raises(TypeError, match="samplers write rows"):
        rows_of_job({LINK_TABLE: columns, TCP_TABLE: ()}, OURS, POINT.topology)

"""The table of TCP samples against what is known otherwise: the topology, the transport, and the links' counters."""

import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyroute2 import DiagSocket

from wanbed.results.records.schema import LINK_SAMPLES, TCP_SAMPLES
from wanbed.results.records.trial_tables import LINK_TABLE, TCP_TABLE
from wanbed.runner.companions.telemetry.on_hosts.samplers import TcpSampler
from wanbed.runner.emulation.running_trial import TrialSpec
from wanbed.runner.emulation.trial import run_trial
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.connections import count_connections
from wanbed.testbed.kernel.namespace import anonymous_namespace, inside, open_netlink
from wanbed.testbed.kernel.tcp import TcpState, TcpStateReader, tcp_states
from wanbed.testbed.testbed import MAX_TRIM_NS, bring_up

LATENCY_MS, CONNECTIONS, WINDOW_BYTES = 20, 3, 128 * 1024
EXPERIMENT = {
    "topology": {
        "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}],
        "wan": {"latency": f"{LATENCY_MS}ms", "rate": "1Gbit", "node_pair_rate": "100Mbit"},
    },
    "compute": {"forward": "5ms", "activation": "2MiB"},
    "training": {"microbatches": 4, "iterations": 2, "warmup": 1},
    "variants": [
        {
            "name": "one",
            "schedule": "gpipe",
            "transport": {"connections": CONNECTIONS, "window": "128KiB", "congestion": "reno"},
        }
    ],
}
# Read between two samples, at most this much more has crossed than either of them says.
SLACK_BYTES = 100_000_000 / 8 * (0.1 + 2 * LATENCY_MS / 1e3)


@pytest.fixture
def trial(substrate: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The TCP samples and the node pairs' counters of one trial."""
    point = parse_experiment(EXPERIMENT, "exp.yaml", Path()).points()[0]
    (variant,) = point.variants
    with bring_up(point.topology, substrate=substrate) as testbed:
        testbed.use_tcp(variant.tcp)
        connections = count_connections(point.topology, variant.pairs, variant.transport)
        record = run_trial(testbed, TrialSpec(point.trials()[0], point, 1.0, connections))
    counters, samples = record.tables[LINK_TABLE], record.tables[TCP_TABLE]
    assert isinstance(counters, Sequence)
    assert isinstance(samples, Sequence)
    links = pd.DataFrame(counters, columns=LINK_SAMPLES.names[3:])
    return pd.DataFrame(samples, columns=TCP_SAMPLES.names[3:]), links[links.scope == "node_pair"]


def test_connections_are_as_the_topology_the_transport_and_the_counters_say(
    trial: tuple[pd.DataFrame, pd.DataFrame],
) -> None:
    tcp, links = trial
    text = tcp.groupby(["source", "destination"])
    assert set(text.groups) == {("east-0", "west-0"), ("west-0", "east-0")}
    ends = {(east, west) for east, west in zip(tcp.source_port, tcp.destination_port, strict=True)}
    assert len(ends) == 2 * CONNECTIONS, "both ends of every connection"
    assert {(west, east) for east, west in ends} == ends
    assert set(tcp.congestion) == {"reno"}

    # Each way the testbed takes what a busy machine adds off the delay, up to MAX_TRIM_NS; that may be less later on.
    assert 2 * LATENCY_MS - 2 * MAX_TRIM_NS / 1e6 <= tcp.shortest_rtt_ns.min() / 1e6 < 2 * LATENCY_MS + 5
    assert (tcp.rtt_ns >= 0.9 * tcp.shortest_rtt_ns).all()
    # The kernel advertises no more than the buffer that was asked for, give or take its rounding.
    assert tcp.peer_window_bytes.max() <= 2 * WINDOW_BYTES
    assert (tcp.unacked_segments * tcp.mss_bytes).max() <= 2 * WINDOW_BYTES
    # 3 windows in 40 ms are 55 Mbit/s at most, half of the cap: it is these that hold the sender up.
    assert tcp.window_limited_ns.max() > 0
    assert (tcp.acked_bytes <= tcp.sent_bytes + 1).all(), "and the one that opened it has its SYN acknowledged"

    for (source, destination), end in text:
        wire = links[(links.source == source) & (links.destination == destination)]
        totals = end.groupby("time_ns")[["acked_bytes", "sent_bytes"]].sum()
        crossed = np.interp(totals.index, wire.time_ns, wire.wire_bytes)
        assert (totals.acked_bytes <= crossed + SLACK_BYTES).all()
        assert (crossed <= 1.15 * totals.sent_bytes + SLACK_BYTES).all()
        assert totals.acked_bytes.max() > 0
    assert np.diff(np.unique(tcp.time_ns)).min() > 0.9 * TcpSampler.interval_s * 1e9


SAME = {
    "rtt_ns": ("tcpi_rtt", 1000),
    "rtt_variation_ns": ("tcpi_rttvar", 1000),
    "shortest_rtt_ns": ("tcpi_min_rtt", 1000),
    "cwnd_segments": ("tcpi_snd_cwnd", 1),
    "mss_bytes": ("tcpi_snd_mss", 1),
    "unacked_segments": ("tcpi_unacked", 1),
    "unsent_bytes": ("tcpi_notsent_bytes", 1),
    "peer_window_bytes": ("tcpi_snd_wnd", 1),
    "delivery_rate_bps": ("tcpi_delivery_rate", 8),
    "delivery_app_limited": ("tcpi_delivery_rate_app_limited", 1),
    "acked_bytes": ("tcpi_bytes_acked", 1),
    "sent_bytes": ("tcpi_bytes_sent", 1),
    "retransmitted_segments": ("tcpi_total_retrans", 1),
}


def compared_fields(states: Sequence[TcpState]) -> list[list[Any]]:
    """The fields that are compared: how long a stalled connection has waited differs from one reading to the next."""
    return [[state.source, *(getattr(state, field) for field in SAME)] for state in states]


@pytest.fixture
def stalled() -> Iterator[str]:
    """A namespace with one connection, whose one end has sent more than the other has read."""
    descriptor = anonymous_namespace()
    namespace = f"/proc/self/fd/{descriptor}"
    netlink = open_netlink(namespace)
    netlink.link("set", index=1, state="up")
    netlink.close()
    with inside(namespace), socket.create_server(("127.0.0.1", 0)) as listening:
        sending = socket.create_connection(listening.getsockname(), source_address=("127.0.0.2", 0))
        accepted, _ = listening.accept()
    sending.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            sending.send(bytes(65536))
    yield namespace
    sending.close()
    accepted.close()
    os.close(descriptor)


def test_a_general_netlink_library_reads_the_same(stalled: str) -> None:
    with inside(stalled):
        general = DiagSocket()
    reader = TcpStateReader([stalled])
    names = {"127.0.0.1": "near", "127.0.0.2": "far"}
    try:
        general.bind()
        for _ in range(50):
            before = tcp_states(reader.read(), names)
            compared = compared_fields(before)
            messages = general.get_sock_stats(family=socket.AF_INET, states=1 << 1, extensions=1 << 1 | 1 << 3)
            if compared == compared_fields(tcp_states(reader.read(), names)):
                break
            time.sleep(0.1)
        else:
            pytest.fail("the connection does not come to rest")
    finally:
        reader.close()
        general.close()
    assert {state.source for state in before} == {"near", "far"}
    sender = next(state for state in before if state.source == "far")
    assert sender.unsent_bytes > 0
    assert sender.delivery_rate_bps
    lines = {names[message["idiag_src"]]: message for message in messages}
    for state in before:
        information = lines[state.source].get_attr("INET_DIAG_INFO")
        assert state.congestion == lines[state.source].get_attr("INET_DIAG_CONG")
        for field, (name, factor) in SAME.items():
            assert (getattr(state, field) or 0) == information[name] * factor, field

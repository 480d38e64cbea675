"""The transport on emulated links: as fast as iperf3 over as many connections, and sharing that multiplies a link."""

import json
import operator
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from wanbed.testbed.measurement.iperf3 import Flow, measure_goodput, settling_s
from wanbed.testbed.network.tcp_settings import TcpSettings
from wanbed.testbed.network.topology import Topology
from wanbed.testbed.testbed import Testbed, bring_up
from wanbed.workloads.transport.links_config import BoundariesConfig, BoundaryConfig, LinksConfig
from wanbed.workloads.transport.peer import Peer

pytestmark = pytest.mark.measures

ROOT = Path(__file__).parents[3]
PORT = 29_500
RUNS_AHEAD_NS = 300_000_000

Resolved = Callable[[dict[str, Any]], Topology]


class End:
    """A rank's transport that runs on a host."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        assert self._say()["ready"]

    def order(self, iteration: int, microbatches: list[int], receives: int, at_ns: int) -> None:
        document = {"iteration": iteration, "microbatches": microbatches, "receives": receives, "at_ns": at_ns}
        self._log(json.dumps(document) + "\n")

    def received(self) -> list[list[int]]:
        """Microbatch, first byte and last byte of each transfer that the last order waited for."""
        received: list[list[int]] = self._say()["received"]
        return received

    def end_input(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def cpu_s(self) -> float:
        """Processor time of the transport, once it has closed."""
        used_s: float = self._say()["cpu_s"]
        return used_s

    def _log(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()

    def _say(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith("{"):
            pytest.fail(f"a transport ended: {line}{self._process.stdout.read()}")
        document: dict[str, Any] = json.loads(line)
        return document


@contextmanager
def started(testbed: Testbed, plans: list[LinksConfig], hosts: list[str], folder: Path) -> Iterator[list[End]]:
    """Each plan's transport on its host, all connected."""
    with ExitStack() as running:
        processes = []
        for plan, host in zip(plans, hosts, strict=True):
            path = folder / f"rank-{plan.rank}.json"
            address = testbed.addresses.address(testbed.topology.host(host))
            path.write_text(json.dumps({"plan": asdict(plan), "address": address, "port": PORT}))
            argv = [sys.executable, str(Path(__file__).with_name("transport_end.py")), str(path)]
            environment = os.environ | {"PYTHONPATH": str(ROOT)}
            process = testbed.spawn(
                host,
                argv,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            running.enter_context(process)
            running.callback(process.kill)
            processes.append(process)
        yield [End(process) for process in processes]


def ordered(
    ends: list[End], iteration: int, senders: dict[int, list[int]], receivers: dict[int, int]
) -> dict[int, Any]:
    """Have ranks send their microbatches at one moment; what each receiver got, in ns since that moment."""
    at_ns = time.monotonic_ns() + RUNS_AHEAD_NS
    for rank in senders.keys() | receivers.keys():
        ends[rank].order(iteration, senders.get(rank, []), receivers.get(rank, 0), at_ns)
    received = {rank: ends[rank].received() for rank in senders.keys() | receivers.keys()}
    return {rank: [(mb, start - at_ns, end - at_ns) for mb, start, end in received[rank]] for rank in receivers}


GOODPUT_RATE_BPS, GOODPUT_ONE_WAY_S = 500_000_000, 0.020
CONNECTIONS = 8
ACTIVATION_BYTES = 4 * 2**20
SECONDS = 2
ROUNDS = 3
"""At most: what else the machine does may slow down one or the other, and hurries neither."""
# A connection of this window carries 358 KiB / 40 ms = 73 Mbit/s: seven fill the link, one does not.
WINDOW_BYTES = 358 * 1024


def children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def transport_goodput(
    testbed: Testbed,
    folder: Path,
    connections: int = CONNECTIONS,
    window_bytes: int | None = None,
    seconds: int = SECONDS,
) -> tuple[float, float]:
    """Goodput in bit/s, settling left out as with iperf3, and CPU seconds a gigabyte of both ends.

    With ``window_bytes`` each connection has so much in flight, and all of them as much together as there is to send.
    """
    settling = settling_s(2 * GOODPUT_ONE_WAY_S)
    rate_bps = GOODPUT_RATE_BPS
    if window_bytes is not None:
        rate_bps = round(connections * window_bytes * 8 / (2 * GOODPUT_ONE_WAY_S))
    microbatches = int((settling + seconds) * rate_bps / 8 / ACTIVATION_BYTES)
    hosts = ["east-0", "west-0"]
    peers = [
        Peer(rank, host, testbed.addresses.address(testbed.topology.host(host)), PORT, connections)
        for rank, host in enumerate(hosts)
    ]
    to_west, to_east = BoundaryConfig(1, ACTIVATION_BYTES), BoundaryConfig(0, ACTIVATION_BYTES)
    plans = [
        LinksConfig(0, 0, 0, (peers[1],), 1, BoundariesConfig(None, to_west, microbatches), window_bytes=window_bytes),
        LinksConfig(1, 0, 1, (peers[0],), 1, BoundariesConfig(to_east, None, microbatches), window_bytes=window_bytes),
    ]
    with started(testbed, plans, hosts, folder) as ends:
        (received,) = ordered(ends, 0, {0: list(range(microbatches))}, {1: microbatches}).values()
        for end in ends:
            end.end_input()
        used_s = sum(end.cpu_s() for end in ends)
    settled = [end_ns for _, _, end_ns in received if end_ns >= received[0][1] + settling * 1_000_000_000]
    goodput_bps = 8e9 * ACTIVATION_BYTES * (len(settled) - 1) / (settled[-1] - settled[0])
    return goodput_bps, used_s / (microbatches * ACTIVATION_BYTES / 1e9)


def iperf3_goodput(testbed: Testbed) -> tuple[float, float]:
    """The same of iperf3; its CPU time is shared out over all that it sent, settling included."""
    rtt_s = 2 * GOODPUT_ONE_WAY_S
    before_s = children_cpu_s()
    (goodput_bps,) = measure_goodput(testbed, [Flow("east-0", "west-0", CONNECTIONS)], rtt_s=rtt_s, seconds=SECONDS)
    gigabytes = goodput_bps / 8e9 * (SECONDS + settling_s(rtt_s))
    return goodput_bps, (children_cpu_s() - before_s) / gigabytes


@pytest.fixture(scope="module")
def pair(substrate: str, resolved: Resolved) -> Iterator[Testbed]:
    topology = resolved(
        {
            "datacenters": [{"name": name, "hosts": 1} for name in ("east", "west")],
            "wan": {"latency": "20ms", "rate": "10Gbit", "node_pair_rate": "500Mbit"},
        }
    )
    with bring_up(topology, substrate=substrate) as testbed:
        yield testbed


def test_the_transport_is_as_fast_as_iperf3_over_as_many_connections(pair: Testbed, tmp_path: Path) -> None:
    ours: list[tuple[float, float]] = []
    theirs: list[tuple[float, float]] = []
    pair.use_tcp(TcpSettings(window_bytes=WINDOW_BYTES))
    (single_bps,) = measure_goodput(pair, [Flow("east-0", "west-0")], rtt_s=2 * GOODPUT_ONE_WAY_S, seconds=1)
    while len(ours) < ROUNDS and (not ours or ours[-1][0] < 0.95 * theirs[-1][0]):
        ours.append(transport_goodput(pair, tmp_path))
        theirs.append(iperf3_goodput(pair))
    print(f"one connection: {single_bps / 1e6:.0f} Mbit/s")
    for name, rounds in (("transport", ours), (f"iperf3 -P {CONNECTIONS}", theirs)):
        text = ", ".join(f"{goodput / 1e6:.0f} Mbit/s at {cpu_s:.2f} CPU s/GB" for goodput, cpu_s in rounds)
        print(f"{name}: {text}")
    assert single_bps < GOODPUT_RATE_BPS / 4
    assert ours[-1][0] >= 0.95 * theirs[-1][0]


@pytest.mark.parametrize("connections", [pytest.param(1, marks=pytest.mark.soak), 3])
def test_connections_move_the_window_that_they_were_given_once_in_a_round_trip(
    pair: Testbed, tmp_path: Path, connections: int
) -> None:
    """A window of little more than a super-packet too, which the kernel by itself fills as it gets round to it."""
    window_bytes = 68_812
    pair.use_tcp(TcpSettings())
    goodput_bps, _ = transport_goodput(pair, tmp_path, connections, window_bytes, seconds=4)
    window_bps = connections * window_bytes * 8 / (2 * GOODPUT_ONE_WAY_S)
    print(f"{connections} connections: {goodput_bps / 1e6:.1f} of {window_bps / 1e6:.1f} Mbit/s")
    assert goodput_bps == pytest.approx(window_bps, rel=0.05)


C = 4
DILATION = 4
"""Brings four pairs of 400 Mbit/s, and what passes through the datacenters besides, within a small machine's reach."""
PAIR_RATE_BPS = 400_000_000
BURST_BYTES = 128 * 1024
"""What the token bucket of a node pair that has been idle lets through at once."""
TRANSFER_S = 0.4
WIRE_BYTES_PER_PAYLOAD_BYTE = 1514 / 1448
LATENCY_S = 0.001


def transfer_bytes(pairs: int, seconds: float = TRANSFER_S) -> int:
    """What ``pairs`` idle node pairs carry together in that time, their buckets' first bursts included."""
    return int(pairs * (PAIR_RATE_BPS / 8 * seconds + BURST_BYTES) / WIRE_BYTES_PER_PAYLOAD_BYTE)


@pytest.fixture(scope="module")
def cell(substrate: str, resolved: Resolved) -> Iterator[Testbed]:
    topology = resolved(
        {
            "datacenters": [{"name": name, "hosts": C} for name in ("east", "west")],
            "wan": {"latency": "1ms", "rate": "10Gbit", "node_pair_rate": "400Mbit"},
        }
    ).dilated(DILATION)
    with bring_up(topology, substrate=substrate) as testbed:
        testbed.use_tcp(TcpSettings(slow_start_after_idle=False))
        yield testbed


@contextmanager
def cell_started(testbed: Testbed, size_bytes: int, folder: Path, *, shared: bool) -> Iterator[list[End]]:
    """C pipelines of two stages, one in each datacenter; their connections are warm when this yields."""
    hosts = [f"{('east', 'west')[rank % 2]}-{rank // 2}" for rank in range(2 * C)]
    peers = [
        Peer(rank, host, testbed.addresses.address(testbed.topology.host(host)), PORT, 1)
        for rank, host in enumerate(hosts)
    ]
    turns = tuple((pipeline, 0) for pipeline in range(C)) if shared else ()
    plans = []
    for rank in range(2 * C):
        pipeline, stage = divmod(rank, 2)
        mates = tuple(2 * each + stage for each in range(C)) if shared else ()
        linked = tuple(peers[to] for to in sorted({*mates, rank ^ 1} - {rank}))
        boundary = BoundaryConfig(rank ^ 1, size_bytes, mates, turns)
        ends = (None, boundary) if stage == 0 else (boundary, None)
        plans.append(LinksConfig(rank, pipeline, stage, linked, 3, BoundariesConfig(*ends)))
    with started(testbed, plans, hosts, folder) as running:
        ordered(running, 0, {rank: [0] for rank in range(0, 2 * C, 2)}, dict.fromkeys(range(1, 2 * C, 2), 1))
        yield running


def arrivals_s(ends: list[End], iteration: int, pipelines: range) -> list[float]:
    """When each pipeline's activation, all sent at one moment, has arrived, in undilated time."""
    got = ordered(ends, iteration, {2 * each: [0] for each in pipelines}, {2 * each + 1: 1 for each in pipelines})
    return [got[2 * each + 1][0][2] / 1e9 / DILATION for each in pipelines]


def pair_bytes(testbed: Testbed) -> dict[tuple[str, str], int]:
    return {
        pair: counters.wire_bytes
        for port in testbed.read_counters()
        if port.source == "east"
        for pair, counters in port.pairs.items()
    }


def test_first_microbatches_arrive_in_turn_with_sharing_and_all_at_the_end_without(
    cell: Testbed, tmp_path: Path
) -> None:
    # With sharing all bursts fall to the first transfer, which they could bring forward by 2 ms.
    size_bytes = transfer_bytes(1)
    with cell_started(cell, size_bytes, tmp_path, shared=True) as ends:
        before = pair_bytes(cell)
        in_turn = arrivals_s(ends, 1, range(C))
        carried = {pair: total - before[pair] for pair, total in pair_bytes(cell).items()}
    with cell_started(cell, size_bytes, tmp_path, shared=False) as ends:
        alone = arrivals_s(ends, 1, range(C))
    expected = [TRANSFER_S * (each + 1) / C + LATENCY_S for each in range(C)]
    print("with sharing", [f"{each:.3f}" for each in in_turn], "expected", [f"{each:.3f}" for each in expected])
    print("without", [f"{each:.3f}" for each in alone])
    print({" to ".join(pair): carried[pair] for pair in carried if carried[pair]})
    # Relays pass on whole chunks, whose last one comes some milliseconds after its transfer's turn. All of them come
    # late by what processes that slept until this moment take to begin.
    assert expected[0] <= in_turn[0] <= expected[0] + TRANSFER_S / C / 2
    assert list(map(operator.sub, in_turn[1:], in_turn)) == pytest.approx([TRANSFER_S / C] * (C - 1), rel=0.05)
    assert alone == pytest.approx([TRANSFER_S + LATENCY_S] * C, rel=0.05)
    shares = [carried[f"east-{each}", f"west-{each}"] for each in range(C)]
    assert min(shares) >= 0.98 * max(shares)
    assert sum(carried.values()) <= 1.01 * sum(shares)


# The first of those that arrive in turn is as fast.
@pytest.mark.soak
def test_a_transfer_with_sharing_is_nearly_c_times_as_fast(cell: Testbed, tmp_path: Path) -> None:
    size_bytes = transfer_bytes(1)
    with cell_started(cell, size_bytes, tmp_path, shared=True) as ends:
        (shared_s,) = arrivals_s(ends, 1, range(1))
    with cell_started(cell, size_bytes, tmp_path, shared=False) as ends:
        (alone_s,) = arrivals_s(ends, 1, range(1))
    burst_s = 8 * BURST_BYTES / PAIR_RATE_BPS
    ratio = (alone_s + burst_s) / (shared_s + burst_s)
    print(f"alone {alone_s:.3f} s, shared {shared_s:.3f} s, {ratio:.2f} times as fast at the pairs' rate")
    assert ratio >= 0.9 * C

"""Loopback throughput of the transport against iperf3's, side by side in one run.

``python -m tests.bench.bench_transport`` prints, for 1, 4 and 16 connections, the goodput in GB/s and the CPU time of
both ends in seconds per GB. The two programs take turns, so that both see the same machine; each figure is the median
of its rounds, with the lowest and the highest beside it. Loopback has no window to wait for: this is what the
programs themselves cost, not what a WAN gives.
"""

import argparse
import json
import multiprocessing
import resource
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from multiprocessing.connection import Connection
from queue import SimpleQueue
from statistics import median
from typing import NamedTuple

from wanbed.workloads.message import Message, MessageKind
from wanbed.workloads.transport.event import Closed, Event, Failed, Received
from wanbed.workloads.transport.links_config import BoundariesConfig, BoundaryConfig, LinksConfig
from wanbed.workloads.transport.peer import Peer
from wanbed.workloads.transport.receive_buffers import BufferPool
from wanbed.workloads.transport.rendezvous import Identity, Rendezvous
from wanbed.workloads.transport.striped_transport import StripedTransport

LOOPBACK = "127.0.0.1"
ACTIVATION_BYTES = 32 * 2**20
TOKEN = bytes(16)


class Figures(NamedTuple):
    """What one round gave."""

    gigabytes_per_s: float
    cpu_s_per_gigabyte: float


def free_port() -> int:
    """A port of the loopback address that nobody listens on."""
    with closing(socket.socket()) as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def cpu_s(who: int) -> float:
    """Processor time used, in the program and in the kernel for it."""
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def transport_end(rank: int, port: int, connections: int, messages: int, result: Connection) -> None:
    """Rank 0 sends every message, rank 1 receives them; what is reported is bytes a second and this end's CPU time."""
    peer = Peer(1 - rank, f"host-{1 - rank}", LOOPBACK, port, connections)
    boundary = BoundaryConfig(peer.rank, ACTIVATION_BYTES)
    previous, following = (None, boundary) if rank == 0 else (boundary, None)
    boundaries = BoundariesConfig(previous, following, messages)
    plan = LinksConfig(rank, 0, rank, (peer,), iterations=1, boundaries=boundaries)
    sockets = Rendezvous(Identity(TOKEN, rank, LOOPBACK, port), plan.peers, sys.exit).rendezvous(8_000_000_000)
    pool, events = BufferPool(), SimpleQueue[Event]()
    transport = StripedTransport(plan, sockets, pool, events.put)
    # Written to, because memory that never was is one page of zeros that the processor's cache holds.
    payload = memoryview(b"\x5a" * ACTIVATION_BYTES)
    cpu_before_s = cpu_s(resource.RUSAGE_SELF)
    transport.start()
    if rank == 0:
        for microbatch in range(messages):
            transport.send(0, Message(MessageKind.ACTIVATION, microbatch), payload)
    transport.close()
    received: list[Received] = []
    while not isinstance(event := events.get(), Closed):
        if isinstance(event, Failed):
            raise event.error
        if isinstance(event, Received):
            received.append(event)
            transport.give_back(event.payload)
    used_s = cpu_s(resource.RUSAGE_SELF) - cpu_before_s
    elapsed_s = (received[-1].end_ns - received[0].start_ns) / 1e9 if received else None
    result.send((elapsed_s, used_s))


def bench_transport(connections: int, seconds: float) -> Figures:
    """One round of the transport; sized by a first short one so that it lasts about ``seconds``."""
    rate = _transport_round(connections, 16).gigabytes_per_s
    return _transport_round(connections, max(16, round(rate * 1e9 * seconds / ACTIVATION_BYTES)))


def _transport_round(connections: int, messages: int) -> Figures:
    context, port = multiprocessing.get_context("spawn"), free_port()
    ends, processes = [], []
    for rank in (1, 0):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=transport_end, args=(rank, port, connections, messages, theirs))
        process.start()
        theirs.close()
        ends.append(ours)
        processes.append(process)
    results = [end.recv() for end in ends]
    for process in processes:
        process.join()
    gigabytes = messages * ACTIVATION_BYTES / 1e9
    return Figures(gigabytes / results[0][0], sum(used_s for _, used_s in results) / gigabytes)


def bench_iperf3(connections: int, seconds: float) -> Figures:
    """One round of iperf3, writing as much at a time as the transport's chunks are."""
    port = free_port()
    cpu_before_s = cpu_s(resource.RUSAGE_CHILDREN)
    server = subprocess.Popen(["iperf3", "-s", "-1", "-B", LOOPBACK, "-p", str(port)], stdout=subprocess.DEVNULL)
    wait_for_listener(port)
    client = ["iperf3", "-c", LOOPBACK, "-p", str(port), "-P", str(connections), "-t", f"{seconds:.0f}", "-l", "256K"]
    done = subprocess.run([*client, "-J"], capture_output=True, text=True, check=False)
    server.wait()
    report = json.loads(done.stdout)
    if "error" in report:
        raise SystemExit(f"iperf3: {report['error']}")
    received = report["end"]["sum_received"]
    used_s = cpu_s(resource.RUSAGE_CHILDREN) - cpu_before_s
    return Figures(received["bits_per_second"] / 8e9, used_s / (received["bytes"] / 1e9))


def wait_for_listener(port: int) -> None:
    """Return once something listens on ``port``, found in the kernel's table so that no client is used up by it."""
    listening = f"{port:04X} 00000000:0000 0A"
    deadline = time.monotonic() + 5
    while True:
        with open("/proc/net/tcp") as table:
            if listening in table.read():
                return
        if time.monotonic() > deadline:
            raise SystemExit("iperf3 does not listen")
        time.sleep(0.01)


def spread(values: Sequence[float]) -> str:
    """Median, lowest and highest."""
    return f"{median(values):5.2f} ({min(values):.2f}-{max(values):.2f})"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=2, help="length of a round")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each program and number of connections")
    options = parser.parse_args()
    if shutil.which("iperf3") is None:
        parser.error("iperf3 is not installed: install Debian's package iperf3")
    programs: dict[str, Callable[[int, float], Figures]] = {"transport": bench_transport, "iperf3": bench_iperf3}
    print(f"{'n':>3}  {'program':<10} {'GB/s':<19} {'CPU s per GB':<19}")
    for connections in (1, 4, 16):
        figures: dict[str, list[Figures]] = {name: [] for name in programs}
        for _ in range(options.rounds):
            for name, bench in programs.items():
                figures[name].append(bench(connections, options.seconds))
        for name, rounds in figures.items():
            rates, costs = zip(*rounds, strict=True)
            print(f"{connections:>3}  {name:<10} {spread(rates):<19} {spread(costs):<19}")
        ratios = [
            ours.gigabytes_per_s / theirs.gigabytes_per_s
            for ours, theirs in zip(figures["transport"], figures["iperf3"], strict=True)
        ]
        print(f"{connections:>3}  ratio      {spread(ratios)}", flush=True)


if __name__ == "__main__":
    main()

"""Measure the goodput between two hosts with ``iperf3``."""

import json
import math
import subprocess
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from wanbed.testbed.hosts.ping import PATIENCE_S, MeasurementError, PrintingProgram, start, with_stderr_tail

if TYPE_CHECKING:
    from wanbed.testbed.running_testbed import RunningTestbed

_IPERF3_PORT = 5201
"""Of the first flow to a host; each further one has the next port."""
UDP_PAYLOAD_BYTES = 1448
"""Of a datagram that fits into an Ethernet frame."""

_SETTLING_ROUNDS = 25
"""Round trips after which slow start and the autotuning of the receive window are over.

Eight untuned connections at an RTT of 320 ms reached the rate of the path after 15 to 20 round trips.
"""

_UDP_ATTEMPTS = 4
"""A stream begins with one datagram each way, and iperf3 waits without end if a link loses it (esnet/iperf #351)."""


@dataclass(frozen=True)
class Flow:
    """One goodput measurement to run: TCP over some connections, or UDP datagrams of a size offered at a rate."""

    source: str
    destination: str
    connections: int = 1
    udp_offered_bps: int | None = None
    udp_payload_bytes: int = UDP_PAYLOAD_BYTES


def parse_iperf3(output: str) -> float:
    """Parse the receiver's goodput in bit/s from a client's JSON. Raise ValueError with iperf3's error."""
    try:
        document: dict[str, Any] = json.loads(output)
        error = document.get("error")
        if error is None:
            return float(document["end"]["sum_received"]["bits_per_second"])
    except (ValueError, AttributeError, KeyError, TypeError):
        raise ValueError(f"iperf3 printed no result: {output[:200]!r}") from None
    raise ValueError(f"iperf3: {error}")


def settling_s(rtt_s: float) -> int:
    """Return the seconds to omit at the start of a measurement, a whole number because iperf3 requires it."""
    return max(1, math.ceil(_SETTLING_ROUNDS * rtt_s))


def measure_goodput(testbed: "RunningTestbed", flows: Sequence[Flow], *, rtt_s: float, seconds: int = 2) -> list[float]:
    """Run the flows at the same time and return each receiver's goodput in bit/s, without the settling time.

    Raise MeasurementError if iperf3 fails.
    """
    datagrams = any(flow.udp_offered_bps is not None for flow in flows)
    for _ in range(_UDP_ATTEMPTS - 1 if datagrams else 0):
        try:
            return _measured(testbed, flows, rtt_s, seconds)
        except _HungError:
            continue
    return _measured(testbed, flows, rtt_s, seconds)


class _HungError(MeasurementError):
    """A client did not end in time."""


def _measured(testbed: "RunningTestbed", flows: Sequence[Flow], rtt_s: float, seconds: int) -> list[float]:
    settling = settling_s(rtt_s)
    patience = settling + seconds + 20 * rtt_s + PATIENCE_S
    ports = _ports(flows)
    with ExitStack() as running:
        for flow, port in zip(flows, ports, strict=True):
            server = start(running, testbed.spawn, flow.destination, _server(testbed, flow, port))
            _await_listening(server, flow)
        clients = [
            start(running, testbed.spawn, flow.source, _client(testbed, flow, port, settling, seconds))
            for flow, port in zip(flows, ports, strict=True)
        ]
        goodputs = []
        for flow, client in zip(flows, clients, strict=True):
            try:
                output, _ = client.communicate(timeout=patience)
                goodputs.append(parse_iperf3(output))
            except subprocess.TimeoutExpired:
                raise _HungError(f"{flow.source} to {flow.destination}: iperf3 hung for {patience:.0f} s") from None
            except ValueError as fault:
                raise MeasurementError(f"{flow.source} to {flow.destination}: {fault}") from None
        return goodputs


def _ports(flows: Sequence[Flow]) -> list[int]:
    """Return the port of each flow's server: a server takes one client, so that those on one host have ports apart."""
    earlier: Counter[str] = Counter()
    ports = []
    for flow in flows:
        ports.append(_IPERF3_PORT + earlier[flow.destination])
        earlier[flow.destination] += 1
    return ports


def _await_listening(server: PrintingProgram, flow: Flow) -> None:
    assert server.stdout is not None
    output = ""
    for line in server.stdout:
        if "Server listening" in line:
            return
        output += line
    raise MeasurementError(with_stderr_tail(f"{flow.destination}: iperf3 does not listen", output))


def _server(testbed: "RunningTestbed", flow: Flow, port: int) -> list[str]:
    argv = ["iperf3", "--server", "--one-off", "--forceflush"]
    return [*argv, "--bind", _address(testbed, flow), "--port", str(port)]


def _address(testbed: "RunningTestbed", flow: Flow) -> str:
    return testbed.addresses.address(testbed.topology.host(flow.destination))


def _client(testbed: "RunningTestbed", flow: Flow, port: int, settling: int, seconds: int) -> list[str]:
    argv = ["iperf3", "--client", _address(testbed, flow), "--port", str(port), "--json"]
    argv += ["--omit", str(settling), "--time", str(seconds), "--parallel", str(flow.connections)]
    if flow.udp_offered_bps is not None:
        argv += ["--udp", "--bitrate", str(flow.udp_offered_bps), "--length", str(flow.udp_payload_bytes)]
    return argv

"""Measure a path between two hosts with the programs that everybody trusts: ping and iperf3."""

import json
import math
import re
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from testbed.virtual_time.inside import in_virtual_time

if TYPE_CHECKING:
    from testbed.testbed import Testbed

PING_INTERVAL_S, PING_INTERVAL_VIRTUAL_S = 0.002, 0.1
"""Where it has at most 10 ms to wait, ping waits by turning round and round, which in virtual time takes for ever."""
IPERF3_PORT = 5201
UDP_PAYLOAD_BYTES = 1448

_SETTLING_ROUNDS = 25
"""Round trips after which slow start and the receive window's autotuning have come to their end.

Eight untuned connections at an RTT of 320 ms were seen to carry what the path gives after 15 to 20 of them.
"""
_PATIENCE_S = 20.0


class MeasurementError(Exception):
    """A measuring program failed; the message is one line with the path and the program's own words."""


@dataclass(frozen=True)
class PingResult:
    """Round-trip times of echo requests: the shortest, median and standard deviation, and the fraction unanswered."""

    sent: int
    lost: float
    shortest_ms: float
    median_ms: float
    deviation_ms: float


@dataclass(frozen=True)
class Flow:
    """One measurement of goodput to be made: TCP over some connections, or UDP offered at a rate."""

    source: str
    destination: str
    connections: int = 1
    udp_offered_bps: int | None = None


_REPLY = re.compile(r"time=([0-9.]+) ms")
_SENT = re.compile(r"(\d+) packets transmitted")


def parse_ping(output: str) -> PingResult:
    """Read what ``ping`` printed. Without any reply the times are NaN.

    Raises ValueError with ping's last words if nothing was sent.
    """
    sent = _SENT.search(output)
    if sent is None or int(sent.group(1)) == 0:
        raise ValueError(_with_last_words("ping sent nothing", output))
    times = sorted(float(found) for found in _REPLY.findall(output))
    lost = 1 - len(times) / int(sent.group(1))
    if not times:
        return PingResult(int(sent.group(1)), lost, math.nan, math.nan, math.nan)
    mean = sum(times) / len(times)
    deviation = math.sqrt(sum((time - mean) ** 2 for time in times) / len(times))
    middle = len(times) // 2
    median = times[middle] if len(times) % 2 else (times[middle - 1] + times[middle]) / 2
    return PingResult(int(sent.group(1)), lost, times[0], median, deviation)


def parse_iperf3(output: str) -> float:
    """Parse the goodput in bit/s that the receiver saw, from a client's JSON. Raises ValueError with iperf3's error."""
    try:
        document: dict[str, Any] = json.loads(output)
        error = document.get("error")
        if error is None:
            return float(document["end"]["sum_received"]["bits_per_second"])
    except (ValueError, AttributeError, KeyError, TypeError):
        raise ValueError(f"iperf3 printed no result: {output[:200]!r}") from None
    raise ValueError(f"iperf3: {error}")


def _with_last_words(what: str, output: str) -> str:
    words = output.strip().splitlines()
    return f"{what}: {words[-1]}" if words else what


def ping(testbed: "Testbed", source: str, destination: str, count: int = 30) -> PingResult:
    """Send ``count`` echo requests, 2 ms apart; in virtual time 100 ms. Raises MeasurementError."""
    interval_s = PING_INTERVAL_VIRTUAL_S if in_virtual_time() else PING_INTERVAL_S
    argv = ["ping", "-n", "-c", str(count), "-i", str(interval_s), "-W", "2", destination]
    patience = count * interval_s + _PATIENCE_S
    with ExitStack() as running:
        process = _start(running, testbed, source, argv)
        try:
            output, _ = process.communicate(timeout=patience)
            return parse_ping(output)
        except subprocess.TimeoutExpired:
            raise MeasurementError(f"{source} to {destination}: ping hung for {patience:.0f} s") from None
        except ValueError as fault:
            raise MeasurementError(f"{source} to {destination}: {fault}") from None


def settling_s(rtt_s: float) -> int:
    """Return the whole seconds (iperf3 takes no others) to leave out at a measurement's start."""
    return max(1, math.ceil(_SETTLING_ROUNDS * rtt_s))


def measure_goodput(testbed: "Testbed", flows: Sequence[Flow], *, rtt_s: float, seconds: int = 2) -> list[float]:
    """Run the flows at the same time and return each one's goodput in bit/s, as its receiver saw it.

    Settling is left out. No two flows may share a destination host. Raises MeasurementError.
    """
    settling = settling_s(rtt_s)
    patience = settling + seconds + 20 * rtt_s + _PATIENCE_S
    with ExitStack() as running:
        for flow in flows:
            argv = ["iperf3", "--server", "--one-off", "--forceflush", "--port", str(IPERF3_PORT)]
            server = _start(running, testbed, flow.destination, argv)
            _await_listening(server, flow)
        clients = [_start(running, testbed, flow.source, _client(testbed, flow, settling, seconds)) for flow in flows]
        goodputs = []
        for flow, client in zip(flows, clients, strict=True):
            try:
                output, _ = client.communicate(timeout=patience)
                goodputs.append(parse_iperf3(output))
            except subprocess.TimeoutExpired:
                raise MeasurementError(
                    f"{flow.source} to {flow.destination}: iperf3 hung for {patience:.0f} s"
                ) from None
            except ValueError as fault:
                raise MeasurementError(f"{flow.source} to {flow.destination}: {fault}") from None
        return goodputs


def _start(running: ExitStack, testbed: "Testbed", host: str, argv: list[str]) -> "subprocess.Popen[str]":
    process: subprocess.Popen[str] = testbed.spawn(
        host, argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    running.enter_context(process)
    running.callback(process.kill)
    return process


def _await_listening(server: "subprocess.Popen[str]", flow: Flow) -> None:
    assert server.stdout is not None
    said = ""
    for line in server.stdout:
        if "Server listening" in line:
            return
        said += line
    raise MeasurementError(_with_last_words(f"{flow.destination}: iperf3 does not listen", said))


def _client(testbed: "Testbed", flow: Flow, settling: int, seconds: int) -> list[str]:
    address = testbed.addresses.address(testbed.topology.host(flow.destination))
    argv = ["iperf3", "--client", address, "--port", str(IPERF3_PORT), "--json"]
    argv += ["--omit", str(settling), "--time", str(seconds), "--parallel", str(flow.connections)]
    if flow.udp_offered_bps is not None:
        argv += ["--udp", "--bitrate", str(flow.udp_offered_bps), "--length", str(UDP_PAYLOAD_BYTES)]
    return argv

"""What virtual time promises: links exact to the microsecond, TCP as Linux does it, and every run like the one before.

Load matters to none of these tests: that is what the last one shows.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.runner.called_wanbed import run_here
from tests.system.virtual_time.inside_virtual_time import kernel_or_skip, printed_inside
from tests.system.virtual_time.links_in_virtual_time import LATENCIES_MS, MANY
from wanbed.testbed.virtual_time.kernel_cache import VirtualKernel

ROOT = Path(__file__).resolve().parents[3]

LAW_MBPS = {10: 1220, 20: 600, 30: 396, 40: 293}
"""What one connection with 6 MiB of receive buffer reached in steady state, as first measured in virtual time."""

EXPERIMENT = """
name: twice
topology:
  datacenters: [{name: east, hosts: 2}, {name: west, hosts: 2}]
  intra: {latency: 50us, rate: 100Gbit}
  wan: {latency: 40ms, rate: 100Gbit, node_pair_rate: 500Mbit}
compute: {forward: 50ms, backward: 100ms, activation: 4MiB, gradient: 8MiB}
training: {stages: 2, pipelines: 2, microbatches: 4, iterations: 2}
clock: virtual
"""
MANY_CONNECTIONS = """
variants: [{name: many connections, schedule: varuna, transport: {connections: 16, window: 1MiB}}]
"""
ONE_CONNECTION = """
variants: [{name: one connection, schedule: gpipe, transport: {connections: 1, window: 1MiB}}]
"""

DIFFERENCE = 0.001
"""How far two runs may lie apart. Most pairs are equal to the nanosecond."""


@pytest.fixture(scope="module")
def kernel() -> VirtualKernel:
    return kernel_or_skip()


@pytest.fixture(scope="module")
def links(kernel: VirtualKernel) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(printed_inside("tests.system.virtual_time.links_in_virtual_time", kernel))
    return document


def test_links_are_exact(links: dict[str, Any]) -> None:
    between = [link for link in links["calibrated"] if link["scope"] == "wan"]
    assert len(between) == 6
    assert len({link["configured_goodput_bps"] for link in between}) == 3
    for link in between:
        assert link["configured_rtt_ms"] == pytest.approx(40.0, abs=0.02)
        # Ping has three digits.
        assert link["measured_rtt_ms"] == pytest.approx(link["configured_rtt_ms"], abs=0.05), link
        assert link["measured_goodput_bps"] == pytest.approx(link["configured_goodput_bps"], rel=0.01), link


def test_directions_set_apart_are_exact_each(links: dict[str, Any]) -> None:
    there, back = links["apart"]
    for link, latency_ms, rate_bps in ((there, 40.0, 100e6), (back, 10.0, 400e6)):
        assert link["measured_rtt_ms"] == pytest.approx(50.0, abs=0.01)
        assert link["measured_goodput_bps"] == pytest.approx(rate_bps * 1448 / 1514, rel=0.01)
        # The calibration sends for 16 ms, headers aside.
        assert link["configured_short_ms"] == pytest.approx(latency_ms + 16.73, abs=0.01)
        assert link["measured_short_ms"] == pytest.approx(link["configured_short_ms"], abs=0.1)


def test_long_frames_have_few_headers(links: dict[str, Any]) -> None:
    for link in links["jumbo"]:
        assert link["measured_rtt_ms"] == pytest.approx(20.0, abs=0.05)
        assert link["configured_goodput_bps"] == pytest.approx(200e6 * 8949 / 9015)
        assert link["measured_goodput_bps"] == pytest.approx(200e6 * 8949 / 9015, rel=0.005)
        assert link["measured_short_ms"] == pytest.approx(link["configured_short_ms"], abs=0.1)


def test_a_modems_link_is_measured(links: dict[str, Any]) -> None:
    for link in links["slow"]:
        assert link["configured_rtt_ms"] == pytest.approx(20 + 2 * 98 * 8 / 9.6)
        assert link["measured_rtt_ms"] == pytest.approx(link["configured_rtt_ms"], rel=0.01)
        assert link["measured_goodput_bps"] == pytest.approx(9600 * 1448 / 1514, rel=0.03)
        assert link["measured_short_ms"] == pytest.approx(link["configured_short_ms"], rel=0.03)


def test_a_measurement_ends_where_nothing_limits_a_rate(links: dict[str, Any]) -> None:
    (inside,) = [link for link in links["calibrated"] if link["scope"] == "intra"]
    assert inside["configured_goodput_bps"] is None
    assert inside["measured_rtt_ms"] == pytest.approx(0.1, abs=0.01)
    assert inside["measured_goodput_bps"] > 100e9


@pytest.mark.parametrize("latency_ms", LATENCIES_MS)
def test_one_untuned_connection_carries_a_window_for_each_round_trip(links: dict[str, Any], latency_ms: int) -> None:
    (pace_bps,) = [bps for latency, connections, bps in links["untuned"] if (latency, connections) == (latency_ms, 1)]
    assert pace_bps / 1e6 == pytest.approx(LAW_MBPS[latency_ms], rel=0.10)


def test_many_connections_fill_a_long_link(links: dict[str, Any]) -> None:
    (pace_bps,) = [bps for _, connections, bps in links["untuned"] if connections == MANY]
    assert 0.95 * 5e9 * 1448 / 1514 <= pace_bps <= 5e9 * 1448 / 1514 * 1.001


@contextmanager
def every_core(*, busy: bool) -> Iterator[None]:
    with ExitStack() as loops:
        for _ in os.sched_getaffinity(0) if busy else ():
            loop = loops.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            loops.callback(loop.kill)
        yield


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize(
    "variants",
    [
        pytest.param(MANY_CONNECTIONS, id="many connections"),
        pytest.param(ONE_CONNECTION, id="one connection", marks=pytest.mark.soak),
    ],
)
@pytest.mark.parametrize("busy", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_a_run_is_the_same_again_whatever_the_load(tmp_path: Path, variants: str, busy: bool) -> None:
    (once,) = run_here(EXPERIMENT + variants, tmp_path).summary.to_dict("records")
    with every_core(busy=busy):
        (again,) = run_here(EXPERIMENT + variants, tmp_path).summary.to_dict("records")
    assert once["clock"] == again["clock"] == "virtual"
    assert once["calibrated"]
    assert again["iteration_times_s"] == pytest.approx(once["iteration_times_s"], rel=DIFFERENCE)

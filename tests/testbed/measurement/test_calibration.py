import math
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ground.impairments import IMPAIRMENTS, UNIMPAIRED
from ground.strict_model import parse_model
from testbed.hosts.ping import PingResult
from testbed.measurement import calibration
from testbed.measurement.calibration import LinkMeasurement, calibrate
from testbed.measurement.measurement import Flow
from testbed.measurement.transfer_calibration import Compared, TransferMeasurement
from testbed.network.goodput import tcp_goodput_bps
from testbed.network.links.link_conditions import LinkConditions
from testbed.network.tcp_settings import TcpSettings
from testbed.network.topology import Topology, resolve_topology
from testbed.network.topology_spec import TopologySpec

EXACT = LinkMeasurement(
    source="east",
    destination="west",
    scope="wan",
    configured_rtt_ms=80.0,
    measured_rtt_ms=80.0,
    configured_goodput_bps=100e6,
    measured_goodput_bps=100e6,
    impairments={each.column: Compared(0.0, 0.0) for each in IMPAIRMENTS},
    echo_requests=100,
)


def network(
    wan: dict[str, Any], hosts: int = 2, intra: dict[str, Any] | None = None, links: list[dict[str, Any]] | None = None
) -> Topology:
    document = {
        "datacenters": [{"name": "east", "hosts": hosts}, {"name": "west", "hosts": 1}],
        "wan": wan,
        "links": links or [],
        "intra": intra or {"latency": "50us", "rate": "10Gbit"},
    }
    return resolve_topology(parse_model(TopologySpec, document, "test"))


class Network:
    """A testbed on which every measurement gives the configured figure; it records settings and measurements."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.settings: list[TcpSettings] = []
        self.flows: list[tuple[Flow, int]] = []
        self.pings: list[tuple[str, str, int]] = []
        self.stacks = SimpleNamespace(modelled=False, opens_sockets=True, echoes=self.ping)
        self.mtu_bytes = 1500
        self.goodputs_off: list[float] = []
        self.transfers: list[tuple[str, str]] = []
        self.transfers_late_s: list[float] = []

    def use_tcp(self, settings: TcpSettings) -> None:
        self.settings.append(settings)

    def spawn(self, *_: object) -> None:
        raise AssertionError("what would be started is measured here")

    def ping(self, source: str, destination: str, count: int) -> PingResult:
        self.pings.append((source, destination, count))
        conditions = self._between(source, destination)
        back = self._between(destination, source)
        deviation_ms = math.hypot(conditions["jitter_ns"], back["jitter_ns"]) / 1e6 / math.sqrt(3)
        answered = round(count * (1 - conditions["loss"]) * (1 - back["loss"]))
        rtt_ms = (conditions["latency_ns"] + back["latency_ns"]) / 1e6
        return PingResult(count, (rtt_ms - deviation_ms, rtt_ms + deviation_ms) * (answered // 2))

    def measure_goodput(self, _: object, flows: list[Flow], *, rtt_s: float, seconds: int) -> list[float]:
        (flow,) = flows
        self.flows.append((flow, seconds))
        conditions = self._between(flow.source, flow.destination)
        back = self._between(flow.destination, flow.source)
        assert rtt_s == pytest.approx((conditions["latency_ns"] + back["latency_ns"]) / 1e9)
        factor = self.goodputs_off.pop(0) if self.goodputs_off else 1.0
        if conditions["rate_bps"] is None:
            return [30e9 * factor]
        if flow.udp_offered_bps is None:
            return [conditions["rate_bps"] * 1448 / 1514 * factor]
        return [min(conditions["rate_bps"] * 1448 / 1490, flow.udp_offered_bps) * (1 - conditions["loss"]) * factor]

    def measure_transfers(
        self, _: object, __: object, hosts: tuple[str, str], conditions: LinkConditions, ___: LinkConditions
    ) -> TransferMeasurement:
        self.transfers.append(hosts)
        assert conditions.pair_rate_bps is not None
        late_s = self.transfers_late_s.pop(0) if self.transfers_late_s else 0.0
        return TransferMeasurement(Compared(0.036, 0.036 + late_s), None, Compared(50e6, 50e6), None, 1500)

    def _between(self, source: str, destination: str) -> dict[str, Any]:
        one, other = (self.topology.host(name).datacenter for name in (source, destination))
        if one == other:
            rate, latency = self.topology.intra_rate_bps, self.topology.intra_latency_ns
            return {"latency_ns": latency, "rate_bps": rate, **asdict(UNIMPAIRED)}
        conditions = self.topology.conditions(one, other)
        return {**conditions.document(), "rate_bps": self.topology.line_rate_bps(one, other)}


def calibrated(network: Network, monkeypatch: pytest.MonkeyPatch) -> list[LinkMeasurement]:
    monkeypatch.setattr(calibration, "measure_goodput", network.measure_goodput)
    monkeypatch.setattr(calibration, "measure_transfers", network.measure_transfers)
    lines: list[LinkMeasurement] = []
    measured = calibrate(network, lines.append)  # type: ignore[arg-type]
    assert lines == measured
    return measured


def test_tcp_leaves_1448_of_1514_bytes_to_the_payload() -> None:
    assert tcp_goodput_bps(100e6) == pytest.approx(100e6 * 1448 / 1514)
    assert tcp_goodput_bps(1.0) == pytest.approx(0.9564, abs=5e-5)


def test_exactly_configured_link_is_within_tolerance() -> None:
    assert EXACT.within_tolerance


@pytest.mark.parametrize(
    ("asked_ms", "measured_ms", "within"),
    [
        (80.0, 81.6, True),
        (80.0, 81.61, False),
        (80.0, 78.4, True),
        (80.0, 78.39, False),
        (10.0, 10.5, True),
        (10.0, 10.51, False),
        (0.1, 0.6, True),
        (0.0, 0.51, False),
    ],
)
def test_an_rtt_may_be_off_by_half_a_millisecond_or_2_percent(
    asked_ms: float, measured_ms: float, within: bool
) -> None:
    assert replace(EXACT, configured_rtt_ms=asked_ms, measured_rtt_ms=measured_ms).within_tolerance is within


@pytest.mark.parametrize(
    ("configured_bps", "measured_bps", "within"),
    [
        (100e6, 97.01e6, True),
        (100e6, 96.99e6, False),
        (100e6, 102.99e6, True),
        (100e6, 103.01e6, False),
        (None, 1.0, True),
        (0.0, 0.0, True),
        (0.0, 1.0, False),
    ],
)
def test_goodput_may_be_off_by_3_percent(configured_bps: float | None, measured_bps: float, within: bool) -> None:
    assert (
        replace(EXACT, configured_goodput_bps=configured_bps, measured_goodput_bps=measured_bps).within_tolerance
        is within
    )


@pytest.mark.parametrize(
    ("asked", "measured", "echoes", "within"),
    [
        # Four standard deviations: 4 x sqrt(0.01 / 2000) = 0.0089.
        (0.01, 0.0188, 2000, True),
        (0.01, 0.0190, 2000, False),
        (0.01, 0.0012, 2000, True),
        (0.05, 0.0, 2000, False),
        (0.0, 0.001, 2000, True),
        (0.0, 0.01, 2000, False),
        (0.0, 1.0, 100, False),
    ],
)
def test_loss_tolerance_is_the_sampling_error(asked: float, measured: float, echoes: int, within: bool) -> None:
    impairments = {**EXACT.impairments, "loss": Compared(asked, measured)}
    link = replace(EXACT, impairments=impairments, echo_requests=echoes)
    assert link.within_tolerance is within


@pytest.mark.parametrize(
    "unknown",
    [
        {"measured_rtt_ms": math.nan},
        {"measured_goodput_bps": math.nan},
        {"impairments": {**EXACT.impairments, "loss": Compared(0.0, math.nan)}},
    ],
)
def test_what_could_not_be_measured_is_outside(unknown: dict[str, Any]) -> None:
    assert not replace(EXACT, **unknown).within_tolerance


def test_jitter_is_reported_and_not_judged() -> None:
    impairments = {**EXACT.impairments, "jitter_ms": Compared(1.0, math.nan)}
    assert replace(EXACT, impairments=impairments).within_tolerance


@given(st.floats(1, 100), st.none() | st.floats(1e3, 1e12))
def test_undilated_times_are_shorter_and_rates_higher(factor: float, goodput_bps: float | None) -> None:
    slow = replace(
        EXACT,
        configured_rtt_ms=80.0 * factor,
        measured_rtt_ms=81.0 * factor,
        configured_goodput_bps=None if goodput_bps is None else goodput_bps / factor,
        measured_goodput_bps=50e6 / factor,
        impairments={
            **EXACT.impairments,
            "jitter_ms": Compared(2.0 * factor, 3.0 * factor),
            "loss": Compared(0.01, 0.02),
        },
    )
    quick = slow.undilated(factor)
    assert (quick.configured_rtt_ms, quick.measured_rtt_ms) == (pytest.approx(80), pytest.approx(81))
    assert quick.configured_goodput_bps == (None if goodput_bps is None else pytest.approx(goodput_bps))
    assert quick.measured_goodput_bps == pytest.approx(50e6)
    assert quick.impairments["jitter_ms"] == Compared(pytest.approx(2), pytest.approx(3))
    assert quick.impairments["loss"] == Compared(0.01, 0.02)


def test_calibration_measures_links_in_both_directions_and_inside_datacenters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    testbed = Network(network({"latency": "40ms", "rate": "1Gbit", "node_pair_rate": "100Mbit"}))
    measured = calibrated(testbed, monkeypatch)
    assert [(link.scope, link.source, link.destination) for link in measured] == [
        ("wan", "east", "west"),
        ("wan", "west", "east"),
        ("intra", "east", "east"),
    ]
    assert [(flow.source, flow.destination) for flow, _ in testbed.flows] == [
        ("east-0", "west-0"),
        ("west-0", "east-0"),
        ("east-0", "east-1"),
    ]
    assert all(link.within_tolerance for link in measured)


def test_directions_set_apart_have_figures_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    back = {"from": "west", "to": "east", "latency": "10ms", "rate": "400Mbit"}
    topology = network({"latency": "40ms", "rate": "100Mbit"}, links=[back])
    there, here, _ = calibrated(Network(topology), monkeypatch)
    assert (there.configured_rtt_ms, here.configured_rtt_ms) == (50.0, 50.0)
    assert there.configured_goodput_bps == pytest.approx(tcp_goodput_bps(100e6))
    assert here.configured_goodput_bps == pytest.approx(tcp_goodput_bps(400e6))
    assert there.within_tolerance
    assert here.within_tolerance


def test_echoes_tell_an_impairment_of_one_direction_from_that_of_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    back = {"from": "west", "to": "east", "loss": "5%", "jitter": "2ms"}
    topology = network({"latency": "40ms", "rate": "100Mbit", "loss": "1%", "jitter": "1ms"}, links=[back])
    there, here, _ = calibrated(Network(topology), monkeypatch)
    for link, loss, jitter_ms in ((there, 0.01, 1.0), (here, 0.05, 2.0)):
        assert link.impairments["loss"] == Compared(loss, pytest.approx(loss, abs=0.002))
        assert link.impairments["jitter_ms"] == Compared(jitter_ms, pytest.approx(jitter_ms, rel=0.01))
        assert link.within_tolerance


def test_datagrams_judge_a_direction_whose_acknowledgements_the_other_could_not_carry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network_ = Network(
        network({"rate": "1Gbit", "latency": "5ms"}, links=[{"from": "west", "to": "east", "rate": "10Mbit"}])
    )
    calibrated(network_, monkeypatch)
    offered = {(flow.source, flow.destination): flow.udp_offered_bps for flow, _ in network_.flows}
    assert offered["east-0", "west-0"] is not None
    assert offered["west-0", "east-0"] is None


def test_configured_figures_follow_from_the_pair_rate_and_twice_the_latency(monkeypatch: pytest.MonkeyPatch) -> None:
    wan = {"latency": "40ms", "rate": "1Gbit", "node_pair_rate": "100Mbit"}
    there, _, inside = calibrated(Network(network(wan)), monkeypatch)
    assert (there.configured_rtt_ms, there.configured_goodput_bps) == (80.0, pytest.approx(100e6 * 1448 / 1514))
    assert (inside.configured_rtt_ms, inside.configured_goodput_bps) == (0.1, pytest.approx(10e9 * 1448 / 1514))


@pytest.mark.parametrize("wan_rate", ["1Gbit", "unlimited"])
def test_wan_goodput_is_limited_by_a_slower_destination_port(wan_rate: str, monkeypatch: pytest.MonkeyPatch) -> None:
    topology = network({"latency": "5ms", "rate": wan_rate}, intra={"rate": "200Mbit"})
    for link in calibrated(Network(topology), monkeypatch):
        assert link.configured_goodput_bps == pytest.approx(200e6 * 1448 / 1514)
        assert link.within_tolerance


def test_a_link_with_jitter_and_loss_is_measured_by_udp_at_more_than_its_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    testbed = Network(network({"latency": "40ms", "rate": "100Mbit", "jitter": "2ms", "loss": "1%"}, hosts=1))
    there, back = calibrated(testbed, monkeypatch)
    for link in (there, back):
        assert link.configured_goodput_bps == pytest.approx(100e6 * 1448 / 1490 * 0.99)
        assert link.impairments["jitter_ms"] == Compared(2.0, pytest.approx(2.0))
        assert link.impairments["loss"] == Compared(0.01, pytest.approx(0.01, rel=0.01))
        assert link.within_tolerance
    offered = [flow.udp_offered_bps for flow, _ in testbed.flows]
    assert offered == [pytest.approx(1.05 * 100e6 * 1448 / 1490, rel=1e-6)] * 2
    assert {count for _, _, count in testbed.pings} == {1000}


def test_unlimited_link_has_no_configured_goodput(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = network({"latency": "5ms"}, hosts=1, intra={"rate": "unlimited"})
    (there, _) = calibrated(Network(topology), monkeypatch)
    assert there.configured_goodput_bps is None
    assert there.within_tolerance


def test_windows_fill_the_path_without_overflowing_its_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    testbed = Network(network({"latency": "40ms", "rate": "500Mbit"}, hosts=1))
    calibrated(testbed, monkeypatch)
    (flow, _), *_ = testbed.flows
    in_flight_bytes = 0.7 * testbed.settings[0].window_bytes * flow.connections
    path_bytes = 500e6 * 0.08 / 8
    assert 1.2 * path_bytes < in_flight_bytes < 2 * path_bytes
    assert not testbed.settings[0].slow_start_after_idle


def test_the_hosts_tcp_is_stock_again_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    testbed = Network(network({"latency": "40ms", "rate": "500Mbit"}))
    calibrated(testbed, monkeypatch)
    assert testbed.settings[-1] == TcpSettings()


def test_a_link_outside_tolerance_is_measured_once_more_and_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    testbed = Network(network({"latency": "40ms", "rate": "100Mbit"}, hosts=1))
    testbed.goodputs_off = [0.9, 1.0, 0.9, 0.9]
    there, back = calibrated(testbed, monkeypatch)
    assert [seconds for _, seconds in testbed.flows] == [2, 4, 2, 4]
    assert there.within_tolerance
    assert not back.within_tolerance


def test_short_transfers_are_measured_with_a_rate_and_without_impairments(monkeypatch: pytest.MonkeyPatch) -> None:
    testbed = Network(network({"latency": "20ms", "rate": "100Mbit"}))
    there, back, inside = calibrated(testbed, monkeypatch)
    assert testbed.transfers == [("east-0", "west-0"), ("west-0", "east-0"), ("east-0", "east-1")]
    for link in (there, back, inside):
        assert (link.configured_short_ms, link.measured_short_ms) == (36.0, 36.0)
        assert (link.configured_share_bps, link.configured_both_ways_ms, link.burst_bytes) == (50e6, None, 1500)
    for wan in ({"latency": "20ms"}, {"latency": "20ms", "rate": "100Mbit", "loss": "1%"}):
        (link, _) = calibrated(Network(network(wan, hosts=1, intra={"rate": "unlimited"})), monkeypatch)
        assert (link.configured_short_ms, link.measured_short_ms, link.burst_bytes) == (None, None, None)


def test_a_link_that_gives_away_a_burst_is_outside_tolerance(monkeypatch: pytest.MonkeyPatch) -> None:
    testbed = Network(network({"latency": "20ms", "rate": "100Mbit"}, hosts=1))
    testbed.transfers_late_s = [-0.0105, -0.0105]
    there, back = calibrated(testbed, monkeypatch)
    assert (there.within_tolerance, back.within_tolerance) == (False, True)


@pytest.mark.parametrize(
    ("name", "asked", "measured", "within"),
    [
        ("short_ms", 20.0, 21.0, True),
        ("short_ms", 20.0, 18.9, False),
        ("short_ms", 100.0, 103.0, True),
        ("both_ways_ms", 100.0, 103.1, False),
        ("share_bps", 50e6, 51.5e6, True),
        ("share_bps", 50e6, 51.6e6, False),
        ("together_bps", 100e6, 96.9e6, False),
        ("together_bps", 100e6, math.nan, False),
    ],
)
def test_tolerance_of_transfers_is_3_percent_or_a_millisecond(
    name: str, asked: float, measured: float, within: bool
) -> None:
    figures: dict[str, Any] = {f"configured_{name}": asked, f"measured_{name}": measured}
    assert replace(EXACT, **figures).within_tolerance is within


def test_undilated_transfers_are_in_the_time_of_the_configured_network() -> None:
    dilated = replace(
        EXACT, configured_short_ms=40.0, measured_short_ms=42.0, configured_share_bps=1e6, burst_bytes=3000
    )
    text = dilated.undilated(4)
    assert (text.configured_short_ms, text.measured_short_ms, text.configured_share_bps) == (10.0, 10.5, 4e6)
    assert (text.measured_share_bps, text.burst_bytes) == (None, 3000)

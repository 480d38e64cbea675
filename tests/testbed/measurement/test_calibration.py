import math
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any

import pytest

from wanbed.ground.impairments import UNIMPAIRED
from wanbed.ground.strict_model import parse_model
from wanbed.testbed.hosts.ping import PingResult
from wanbed.testbed.measurement import calibration
from wanbed.testbed.measurement.calibration import MeasuredLink, calibrate
from wanbed.testbed.measurement.iperf3 import Flow
from wanbed.testbed.measurement.transfer_calibration import ComparedFigure, TransferMeasurement
from wanbed.testbed.network.gateway_layout import plan_gateways
from wanbed.testbed.network.goodput import tcp_goodput_bps
from wanbed.testbed.network.links.wan_link import LinkConditions, course_of
from wanbed.testbed.network.tcp_settings import TcpSettings
from wanbed.testbed.network.topology import Topology, resolve_topology
from wanbed.testbed.network.topology_spec import TopologySpec


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
        self.gateway_plan = plan_gateways(topology, 1)
        self.goodputs_off: list[float] = []
        self.transfers: list[tuple[str, str]] = []
        self.transfers_late_ms: list[float] = []
        self.held_ns: list[int] = []
        self.changing = self if topology.changes else None

    def hold(self, time_ns: int) -> None:
        self.held_ns.append(time_ns)

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
        self, _: object, __: object, hosts: tuple[str, str], conditions: LinkConditions, ___: object, *, rate_bps: int
    ) -> TransferMeasurement:
        self.transfers.append(hosts)
        assert conditions.pair_rate_bps == rate_bps
        late_ms = self.transfers_late_ms.pop(0) if self.transfers_late_ms else 0.0
        figures = {"short_ms": ComparedFigure(36.0, 36.0 + late_ms), "share_bps": ComparedFigure(50e6, 50e6)}
        return TransferMeasurement(figures, 1500)

    def _between(self, source: str, destination: str) -> dict[str, Any]:
        one, other = (self.topology.host(name).datacenter for name in (source, destination))
        if one == other:
            rate, latency = self.topology.intra_rate_bps, self.topology.intra_latency_ns
            return {"latency_ns": latency, "rate_bps": rate, **asdict(UNIMPAIRED)}
        now = self.topology.at(self.held_ns[-1] if self.held_ns else 0)
        conditions = now.conditions(one, other)
        loss = conditions.impairments.loss if conditions.up else 1.0
        return {**conditions.document(), "loss": loss, "rate_bps": now.line_rate_bps(one, other)}


def calibrated(network: Network, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    monkeypatch.setattr(calibration, "measure_goodput", network.measure_goodput)
    monkeypatch.setattr(calibration, "measure_transfers", network.measure_transfers)
    lines: list[MeasuredLink] = []
    measured = calibrate(network, lines.append)  # type: ignore[arg-type]
    assert lines == measured
    return measured


def test_tcp_leaves_1448_of_1514_bytes_to_the_payload() -> None:
    assert tcp_goodput_bps(100e6) == pytest.approx(100e6 * 1448 / 1514)
    assert tcp_goodput_bps(1.0) == pytest.approx(0.9564, abs=5e-5)


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
        assert link.impairments["loss"] == ComparedFigure(loss, pytest.approx(loss, abs=0.002))
        assert link.impairments["jitter_ms"] == ComparedFigure(jitter_ms, pytest.approx(jitter_ms, rel=0.01))
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
        assert link.impairments["jitter_ms"] == ComparedFigure(2.0, pytest.approx(2.0))
        assert link.impairments["loss"] == ComparedFigure(0.01, pytest.approx(0.01, rel=0.01))
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
    in_flight_bytes = testbed.settings[0].window_bytes * flow.connections
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
        assert link.transfers["short_ms"] == ComparedFigure(36.0, 36.0)
        assert link.transfers["share_bps"].configured == 50e6
        assert ("both_ways_ms" in link.transfers, link.burst_bytes) == (False, 1500)
    for wan in ({"latency": "20ms"}, {"latency": "20ms", "rate": "100Mbit", "loss": "1%"}):
        (link, _) = calibrated(Network(network(wan, hosts=1, intra={"rate": "unlimited"})), monkeypatch)
        assert (link.transfers, link.burst_bytes) == ({}, None)


def test_a_link_that_gives_away_a_burst_is_outside_tolerance(monkeypatch: pytest.MonkeyPatch) -> None:
    testbed = Network(network({"latency": "20ms", "rate": "100Mbit"}, hosts=1))
    testbed.transfers_late_ms = [-10.5, -10.5]
    there, back = calibrated(testbed, monkeypatch)
    assert (there.within_tolerance, back.within_tolerance) == (False, True)


def changing_network() -> Topology:
    """A link that is slower after a second, down from east to west after two, and then as before."""
    constant = network({"latency": "20ms", "rate": "100Mbit"})
    (link,) = constant.wan
    slow, down = replace(link.conditions, rate_bps=10**7), replace(link.conditions, up=False)
    there = course_of([(0, link.conditions), (10**9, slow), (2 * 10**9, down), (3 * 10**9, link.conditions)])
    return replace(constant, wan=(replace(link, courses=(there, None)),))


def test_a_link_that_changes_is_measured_in_each_of_its_conditions_and_then_has_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net = Network(changing_network())
    links = calibrated(net, monkeypatch)
    wan = [(link.source, link.condition) for link in links if link.scope == "wan"]
    assert wan == [(name, at) for at in ("0ns", "1s", "2s, down") for name in ("east", "west")]
    assert net.held_ns == [10**9, 2 * 10**9, 0]
    assert all(link.within_tolerance for link in links)
    slow = next(link for link in links if (link.source, link.condition) == ("east", "1s"))
    assert slow.configured_goodput_bps == pytest.approx(10e6 * 1448 / 1514)
    assert {link.condition for link in links if link.scope == "intra"} == {None}

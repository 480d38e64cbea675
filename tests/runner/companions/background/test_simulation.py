"""Flows in the background share trunks with a simulated training."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.runner.background import TO_WEST, with_background
from tests.support.runner.two_jobs import two_jobs
from wanbed.flow.event_queue import EventQueue
from wanbed.ground.errors import SimulationError
from wanbed.runner.companions.background import simulation as background
from wanbed.runner.companions.background.simulation import SimulatedBackground
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.connections import count_connections
from wanbed.runner.resolve.tcp_effects import IDEAL, TcpEffects
from wanbed.runner.simulator.channels.network import Network
from wanbed.runner.simulator.simulation import FlowTraffic, Simulation
from wanbed.runner.simulator.variant_simulation import simulate_variant

S = 10**9
MS = 10**6
HEADERS_ONLY = TcpEffects(window=False, slow_start=False, headers=True)
IDLE = {"forward": "400ms", "backward": "400ms", "activation": "1KiB"}
"""Training that leaves the link to others."""


def simulated(document: dict[str, Any], name: str = "1f1b") -> Simulation:
    (point,) = parse_experiment({"engine": "simulate", **document}, "file", Path()).points()
    variant = point.variant(name)
    return simulate_variant(point.topology, variant, point.iterations(variant))


def sent_mbit(flow: FlowTraffic, begin_s: float, end_s: float) -> float:
    """Return the rate in Mbit/s at which a flow sent, headers included."""
    before, after = flow.sent.sent_by(np.array([begin_s * S, end_s * S]).astype(np.int64))
    return float(after - before) * 8e-6 / (end_s - begin_s)


CONSTANT_TIMES = {"burst": "500ms", "pause": "500ms", "times": "constant"}
STEPS = {"t.csv": "t_s,rate\n1,20Mbit\n2,60Mbit\n3,\n"}


@pytest.mark.parametrize(
    ("flow", "sections", "rates_mbit", "rel"),
    [
        pytest.param({}, {}, {(1, 4): 100}, 0.01, id="bulk"),
        pytest.param({"connections": 4}, {}, {(1, 4): 100}, 0.01, id="bulk over four connections"),
        pytest.param({"rate": "30Mbit"}, {}, {(1, 4): 30}, 0.01, id="a rate on the wire"),
        pytest.param({"rate": "30Mbit", "protocol": "udp"}, {}, {(1, 4): 30}, 0.01, id="a rate of datagrams"),
        pytest.param(
            {"rate": "300Mbit", "protocol": "udp"}, {}, {(1, 4): 100}, 0.01, id="datagrams beyond the link are lost"
        ),
        pytest.param(
            {"on_off": CONSTANT_TIMES, "rate": "50Mbit"}, {}, {(2.0, 2.5): 50, (2.51, 3.0): 0}, 0.03, id="pauses"
        ),
        pytest.param(
            {"trace": "t.csv", "loop": True},
            {"traces": STEPS},
            {(at_s + 0.02, at_s + 1): rate for at_s, rate in ((0, 0), (1, 20), (2, 60), (3, 0), (4, 20))},
            0.03,
            id="a trace",
        ),
        pytest.param(
            {},
            {"wan": {"events": [{"at": "2s", "rate": "40Mbit"}]}},
            {(1, 2): 100, (2.5, 4): 40},
            0.02,
            id="a link that changes",
        ),
    ],
)
def test_a_flow_that_nobody_disturbs_sends_as_it_says_or_as_its_link_lets_it(
    flow: dict[str, Any], sections: dict[str, Any], rates_mbit: dict[tuple[float, float], float], rel: float
) -> None:
    (found,) = simulated(with_background({**TO_WEST, **flow}, compute=IDLE, **sections)).background
    assert {each: sent_mbit(found, *each) for each in rates_mbit} == pytest.approx(rates_mbit, rel=rel)
    assert (found.sent.source, found.sent.destination) == ("east-background-0", "west-background-0")


def test_what_is_received_is_the_payload_one_latency_later() -> None:
    (flow,) = simulated(with_background(TO_WEST, compute=IDLE)).background
    at_ns = np.arange(1, 4) * S
    payload = flow.received.sent_by(at_ns + 10_000_000)
    assert payload == pytest.approx(flow.sent.sent_by(at_ns) * 1448 / 1514, rel=1e-4)


def test_of_a_datagram_1472_bytes_of_1514_are_payload() -> None:
    (flow,) = simulated(with_background({**TO_WEST, "rate": "30Mbit", "protocol": "udp"}, compute=IDLE)).background
    at_ns = np.arange(1, 4) * S
    payload = flow.received.sent_by(at_ns + 10_000_000)
    assert payload == pytest.approx(flow.sent.sent_by(at_ns) * 1472 / 1514, rel=1e-4)


def test_a_bulk_flow_takes_half_of_a_trunk_that_training_keeps_busy() -> None:
    gpipe = [{"name": "1f1b", "schedule": "gpipe"}]
    compute = {"forward": "1ms", "backward": "1ms", "activation": "8MiB"}
    document = with_background(variants=gpipe, compute=compute)
    alone = simulated(document)
    beside = simulated({**document, "background": [TO_WEST]})
    (flow,) = beside.background
    (there,) = [each for each in beside.traffic if each.source == "east-0"]
    # GPipe's 8 activations of 8 MiB take 10 s over half of the link.
    training = float(np.diff(there.sent_by(np.array([2 * S, 8 * S]))).item()) * 8e-6 / 6
    assert training == pytest.approx(50, rel=0.02)
    assert sent_mbit(flow, 2, 8) == pytest.approx(50, rel=0.02)
    assert beside.iteration_time_ns(1) == pytest.approx(1.5 * alone.iteration_time_ns(1), rel=0.05)


def test_a_trunk_that_is_wide_enough_for_all_leaves_training_as_alone() -> None:
    wan = {"rate": "400Mbit", "node_pair_rate": "100Mbit"}
    by_mean = [{"name": "1f1b", "schedule": "1f1b", "transport": {"model": "mean"}}]
    alone, beside = (simulated(with_background(*flows, wan=wan, variants=by_mean)) for flows in ((), (TO_WEST,)))
    for column in ("rank", "kind", "iteration", "microbatch", "start_ns", "end_ns", "size_bytes", "peer"):
        assert np.array_equal(getattr(alone.spans, column), getattr(beside.spans, column)), column


def test_a_flow_crosses_links_that_lose_packets() -> None:
    (flow,) = simulated(with_background({**TO_WEST, "connections": 4}, wan={"loss": "0.5%"}, compute=IDLE)).background
    assert 5 < sent_mbit(flow, 1, 4) < 100


NARROW_MBIT = 1
ACKNOWLEDGED, ACKNOWLEDGEMENT = 2 * 1514, 66
"""The wire bytes that are acknowledged together, and of what acknowledges them."""


def beside_a_narrow_way_back(*flows: dict[str, Any]) -> list[FlowTraffic]:
    """Flows over a link of 100 Mbit/s there, and of 1 back, while nothing else is sent."""
    document = with_background(*flows, compute=IDLE, training={"stages": 2, "microbatches": 1, "iterations": 8})
    ways = [
        {"from": one, "to": other, "latency": "10ms", "rate": f"{rate}Mbit"}
        for one, other, rate in (("east", "west", 100), ("west", "east", NARROW_MBIT))
    ]
    document["topology"] = {"datacenters": document["topology"]["datacenters"], "links": ways}
    return list(simulated(document).background)


def test_a_bulk_flow_sends_as_fast_as_its_acknowledgements_fit_the_way_back() -> None:
    (flow,) = beside_a_narrow_way_back(TO_WEST)
    assert sent_mbit(flow, 2, 5) == pytest.approx(NARROW_MBIT * ACKNOWLEDGED / ACKNOWLEDGEMENT, rel=0.05)


def test_what_the_way_back_carries_besides_is_taken_from_its_acknowledgements() -> None:
    wide, narrow = beside_a_narrow_way_back(TO_WEST, {"name": "back", "from": "west", "to": "east"})
    acknowledgements_mbit = sent_mbit(wide, 2, 5) * ACKNOWLEDGEMENT / ACKNOWLEDGED
    assert acknowledgements_mbit + sent_mbit(narrow, 2, 5) == pytest.approx(NARROW_MBIT, rel=0.03)
    assert min(acknowledgements_mbit, sent_mbit(narrow, 2, 5)) > 0.2 * NARROW_MBIT


def test_all_members_of_a_combination_of_jobs_find_the_same_flows() -> None:
    flows = [TO_WEST, {"name": "back", "from": "west", "to": "east", "rate": "20Mbit"}]
    document = two_jobs(rate="200Mbit", background=flows)
    ours, theirs = (simulated(document, name) for name in ("ours beside theirs", "theirs beside ours"))
    for one, other in zip(ours.background, theirs.background, strict=True):
        assert np.array_equal(one.sent.wire_bytes, other.sent.wire_bytes)
    alone = simulated(two_jobs(rate="200Mbit"), "ours beside theirs")
    assert ours.iteration_time_ns(1) > 1.1 * alone.iteration_time_ns(1)


def test_training_in_which_nothing_ends_any_more_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "_PATIENCE_NS", 300_000_000)
    with pytest.raises(SimulationError, match="nothing has ended in training for an hour of simulated time"):
        simulated(with_background(TO_WEST, compute=IDLE))


def alone(
    flow: dict[str, Any],
    until_ns: int,
    *,
    effects: TcpEffects = IDEAL,
    ended: Callable[[int], int] = lambda now_ns: now_ns,
    **wan: Any,
) -> FlowTraffic:
    """Return what a flow sends by then over a line of its own; training has ended so many spans at each time."""
    document = with_background({**TO_WEST, **flow}, wan={"rate": "unlimited", **wan})
    (point,) = parse_experiment({"engine": "simulate", **document}, "file", Path()).points()
    (variant,), topology = point.variants, point.topology
    connections = count_connections(topology, variant.pairs, variant.transport)
    network, events = Network(topology, connections, variant, effects), EventQueue()
    traffic = SimulatedBackground(point.background, network, events)
    rows: list[int] = []
    traffic.begin(replace(network, beside=traffic.by_host).channels(traffic.networks, events), [rows])
    while events.next_ns is not None and events.next_ns <= until_ns:
        rows += [0] * (ended(events.next_ns) - len(rows))
        events.handle_next_instant()
    (sent,) = traffic.flows()
    return sent


def constant(burst: str, pause: str) -> dict[str, Any]:
    return {"on_off": {"burst": burst, "pause": pause, "times": "constant"}}


def some(_: int) -> int:
    return 1


def test_a_bulk_flow_hands_over_what_its_line_carries_in_ten_milliseconds_or_32_kib() -> None:
    for rate, piece_bytes in (("800Mbit", 1_000_000), ("27Mbit", 33_750), ("26Mbit", 32_768), ("8Mbit", 32_768)):
        sent = alone({}, S, ended=some, node_pair_rate=rate).sent
        assert np.diff(sent.wire_bytes[sent.wire_bytes > 0])[0] == piece_bytes, rate
        assert sent.wire_bytes[1] == piece_bytes
    assert alone({}, 0, ended=some, node_pair_rate="8Mbit").sent.wire_bytes.tolist() == [0]


def test_two_pieces_wait_while_a_burst_lasts_and_are_sent_after_it() -> None:
    # A byte a microsecond: a piece of 32,768 bytes leaves in 32.768 ms, and another one is handed over in its place.
    for burst, pieces in (("32767us", 2), ("32768us", 2), ("32769us", 3), ("65536us", 3), ("65537us", 4)):
        sent = alone(constant(burst, "800ms"), S // 2, ended=some, node_pair_rate="8Mbit").sent
        assert sent.wire_bytes[-1] == pieces * 32_768, burst
        assert sent.last_ns == pieces * 32_768_000


def test_what_a_flow_offers_beyond_128_kib_a_connection_is_lost() -> None:
    # 300 Mbit/s are 187,500 bytes every 5 ms, of which the line carries 5,000.
    for connections, held in ((1, 131_072), (2, 262_144), (3, 393_216)):
        flow = {**constant("20ms", "100s"), "rate": "300Mbit", "connections": connections}
        assert alone(flow, 50 * S, ended=some, node_pair_rate="8Mbit").sent.wire_bytes[-1] == held + 187_500
    slow = alone({**constant("20ms", "100s"), "rate": "300Mbit"}, 50 * S, ended=some, node_pair_rate="300Mbit").sent
    assert slow.wire_bytes[-1] == 4 * 187_500


def test_a_flow_with_a_rate_sends_every_five_milliseconds_at_the_rate_of_its_line() -> None:
    sent = alone({"rate": "8Mbit"}, 12 * MS, ended=some, node_pair_rate="80Mbit", latency="10ms").sent
    # 5,000 bytes leave in half a millisecond.
    assert sent.sent_by(np.array([0, 250_000, 500_000, 5 * MS, 5_250_000, 5_500_000, 10 * MS])).tolist() == [
        *(0, 2_500, 5_000, 5_000, 7_500, 10_000, 10_000)
    ]


def test_what_is_received_of_a_flow_with_a_rate_is_its_payload_rounded_down_once() -> None:
    for rate, ticks in (("30Mbit", 37), ("9600bit", 200), ("8kbit", 41)):
        found = alone({"rate": rate}, (5 * ticks - 1) * MS, effects=HEADERS_ONLY, ended=some, node_pair_rate="80Mbit")
        wire = {"30Mbit": 18_750, "9600bit": 6, "8kbit": 5}[rate] * ticks
        assert found.received.wire_bytes[-1] == wire * 1448 // 1514, rate
        assert wire - 2 <= found.sent.wire_bytes[-1] <= wire
        without = alone({"rate": rate}, (5 * ticks - 1) * MS, ended=some, node_pair_rate="80Mbit")
        assert without.received.wire_bytes[-1] == without.sent.wire_bytes[-1] == wire


def test_each_byte_arrives_a_latency_after_it_has_left() -> None:
    found = alone({"rate": "8Mbit"}, 52 * MS, ended=some, node_pair_rate="80Mbit", latency="7ms")
    assert found.received.times_ns.tolist()[1:] == [each + 7 * MS for each in found.sent.times_ns.tolist()[1:]]
    assert found.received.wire_bytes.tolist() == found.sent.wire_bytes.tolist()
    assert found.name == "flow"


def test_datagrams_know_no_windows() -> None:
    # A window of 64 KiB lets a fifth out in a round trip of 200 ms; datagrams are sent at their rate, or are lost.
    slow: dict[str, Any] = {"rate": "30Mbit", "window": "64KiB"}
    wan = {"node_pair_rate": "80Mbit", "latency": "100ms"}
    tcp, udp = (
        alone({**flow, "protocol": protocol}, S, effects=TcpEffects(headers=False), ended=some, **wan).sent.wire_bytes[
            -1
        ]
        for flow, protocol in ((slow, "tcp"), ({"rate": "30Mbit"}, "udp"))
    )
    assert udp == pytest.approx(30e6 / 8, rel=0.006)
    assert tcp < udp / 5


def test_training_may_end_nothing_for_an_hour_and_not_for_longer() -> None:
    # Two handouts, five milliseconds apart, every hour: nothing in between would notice.
    hour_ns = 3_600 * S
    hourly, later = ({**constant("10ms", pause), "rate": "8Mbit"} for pause in ("3599990ms", "3599991ms"))
    just_in_time = alone(hourly, hour_ns + 6 * MS, ended=lambda now_ns: 1 + (now_ns > hour_ns))
    assert just_in_time.sent.wire_bytes[-1] == 20_000
    with pytest.raises(SimulationError, match="for an hour of simulated time"):
        alone(hourly, hour_ns + 6 * MS, ended=some)
    with pytest.raises(SimulationError):
        alone(later, hour_ns + 2 * MS, ended=some)


def test_beside_a_flow_no_pipeline_stands_for_another() -> None:
    training = {"stages": 2, "pipelines": 2, "microbatches": 2, "iterations": 2, "warmup": 0}
    document = with_background(TO_WEST, training=training, compute={"activation": "1MiB", "gradient": "1KiB"})
    document["topology"]["datacenters"] = [{"name": name, "hosts": 2} for name in ("east", "west")]
    (point,) = parse_experiment({"engine": "simulate", **document}, "file", Path()).points()
    one, all_ = (simulate_variant(point.topology, point.variants[0], 2, symmetry=each) for each in (True, False))
    assert np.array_equal(one.spans.end_ns, all_.spans.end_ns)

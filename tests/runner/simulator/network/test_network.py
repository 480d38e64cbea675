"""Node pairs, trunks and ports are shared first between node pairs and then between channels."""

from typing import Any

from runner.resolve.connection_count import count_connections
from runner.simulator.event_queue import EventQueue
from runner.simulator.network.network import Ends, Network
from runner.tcp.effects import IDEAL, TcpEffects
from tests.runner.simulator.variants import sweep_point

MEGABYTE = 10**6


def network(*, gpus: int = 4, window: str = "6MiB", effects: TcpEffects = IDEAL, **limits: Any) -> Network:
    """Two datacenters of two hosts; one pipeline, a stage on each GPU, those of east first."""
    wan = {"latency": "0ms", **limits.pop("wan", {})}
    document = {
        "topology": {
            "datacenters": [{"name": name, "hosts": 2, "gpus_per_host": gpus} for name in ("east", "west")],
            "intra": {"latency": "0ms", **limits.pop("intra", {})},
            "wan": wan,
        },
        "compute": {"activation": "1B"},
        "training": {"stages": 4 * gpus, "pipelines": 1, "microbatches": 1, "iterations": 1, "warmup": 0},
        "engine": "simulate",
        "variants": [{"name": "any", "schedule": "gpipe", "transport": {"connections": 1, "window": window}}],
    }
    point = sweep_point(document)
    (variant,) = point.variants
    places = variant.placement.places
    pairs = [(one, other) for one in places for other in places if one is not other]
    connections = count_connections(point.topology, pairs, variant.transport, variant.clock)
    return Network(point.topology, connections, variant, effects)


def seconds(of: Network, transfers: dict[tuple[str, str], int]) -> list[float]:
    """Return when simultaneous transfers of 1 MB have left, given their number from one GPU's place to another's."""
    places = {f"{place.host.name}.{place.gpu}": place for place in of.variant.placement.places}
    events = EventQueue()
    wanted: dict[Ends, int] = {(places[one], places[other]): count for (one, other), count in transfers.items()}
    channels = of.channels(wanted, events)
    ends: dict[Ends, int] = {}
    for pair, count in wanted.items():
        for _ in range(count):
            channels[pair].queue(0, MEGABYTE, lambda _, end_ns, pair=pair: ends.update({pair: end_ns}))
    while events.handle_next_instant():
        pass
    return [round(ends[pair] / 1e9, 6) for pair in wanted]


def test_a_trunk_is_shared_between_node_pairs_however_many_channels_each_has() -> None:
    of = network(wan={"rate": "16Mbit"})
    three = {(f"east-0.{gpu}", f"west-0.{gpu}"): 1 for gpu in range(3)}
    # Half of 2 MB/s each: 1 s for the pair with one transfer, then all of it for what the three have left.
    assert seconds(of, {**three, ("east-1.0", "west-1.0"): 1}) == [2.0, 2.0, 2.0, 1.0]


def test_a_node_pair_is_shared_between_its_channels() -> None:
    of = network(wan={"node_pair_rate": "8Mbit"})
    assert seconds(of, {("east-0.0", "west-0.0"): 1, ("east-0.1", "west-0.1"): 1}) == [2.0, 2.0]


def test_what_windows_have_let_out_at_once_waits_in_line() -> None:
    narrow, wide = "16KiB", "16MiB"
    transfers = {("east-0.0", "west-0.0"): 1, ("east-0.1", "west-0.1"): 1}
    limits: dict[str, Any] = {"wan": {"node_pair_rate": "8Mbit", "latency": "1ms"}}
    effects = TcpEffects(window=True, slow_start=False, headers=False)
    assert seconds(network(window=wide, effects=effects, **limits), transfers) == [1.0, 2.0]
    # Data that windows let out gradually is interleaved.
    assert seconds(network(window=narrow, effects=effects, **limits), transfers)[0] > 1.9


def test_both_directions_are_independent() -> None:
    of = network(wan={"rate": "8Mbit"})
    assert seconds(of, {("east-0.0", "west-0.0"): 1, ("west-0.0", "east-0.0"): 1}) == [1.0, 1.0]


def test_what_arrives_at_a_host_from_anywhere_shares_its_port() -> None:
    of = network(intra={"rate": "8Mbit"})
    arriving = {("east-0.0", "west-0.0"): 1, ("west-1.0", "west-0.1"): 1}
    assert seconds(of, arriving) == [2.0, 2.0]


def test_what_a_host_sends_to_several_is_not_limited_by_its_own_port() -> None:
    of = network(intra={"rate": "8Mbit"})
    assert seconds(of, {("east-0.0", "east-1.0"): 1, ("east-0.1", "west-0.0"): 1}) == [1.0, 1.0]


def test_a_port_wider_than_all_its_senders_does_not_limit() -> None:
    of = network(intra={"rate": "80Mbit"}, wan={"node_pair_rate": "8Mbit"})
    arriving = {("east-0.0", "west-0.0"): 1, ("east-1.0", "west-0.1"): 1}
    assert seconds(of, arriving) == [1.0, 1.0]


def test_a_line_is_as_fast_as_the_narrowest_of_what_it_crosses() -> None:
    of = network(intra={"rate": "8Mbit"}, wan={"rate": "80Mbit", "node_pair_rate": "40Mbit"})
    places = of.variant.placement.places
    assert of.line((places[0], places[-1])).rate_bps == 8 * MEGABYTE


def test_only_what_crosses_the_wan_is_remembered() -> None:
    of = network(intra={"rate": "8Mbit"})
    places = {f"{place.host.name}.{place.gpu}": place for place in of.variant.placement.places}
    events = EventQueue()
    within, across = ((places[one], places["east-1.0"]) for one in ("east-0.0", "west-0.0"))
    channels = of.channels([within, across], events)
    for channel in channels.values():
        channel.queue(0, MEGABYTE, lambda *_: None)
    while events.handle_next_instant():
        pass
    assert not channels[within].history
    # The two share the port of 1 MB/s.
    assert list(channels[across].history) == [0, 2 * 10**9, MEGABYTE]

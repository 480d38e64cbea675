from typing import Any

import pytest

from tests.support.refused import refused
from wanbed.ground.impairments import Impairments
from wanbed.ground.strict_model import parse_model
from wanbed.testbed.network.links.wan_link import LinkConditions
from wanbed.testbed.network.topology import Topology, resolve_topology
from wanbed.testbed.network.topology_spec import TopologySpec

MS = 1_000_000
GBIT = 10**9
NAMES = ("east", "central", "west")
PRESET = {
    frozenset(("east", "central")): LinkConditions(10 * MS, 100 * GBIT, 5 * GBIT),
    frozenset(("east", "west")): LinkConditions(30 * MS, 100 * GBIT, 5 * GBIT),
    frozenset(("central", "west")): LinkConditions(20 * MS, 100 * GBIT, 5 * GBIT),
}


def resolved(**topology: Any) -> Topology:
    document = {"datacenters": [{"name": name, "hosts": 1} for name in NAMES], **topology}
    spec = parse_model(TopologySpec, document, "file")
    return resolve_topology(spec, PRESET if spec.profile else None)


def refusal(**topology: Any) -> str:
    return refused(lambda: resolved(**topology))


def test_a_scale_multiplies_latency_and_both_rates_of_every_link_of_a_preset() -> None:
    topology = resolved(profile="regions", scale={"latency": 2, "rate": 0.5})
    assert topology.conditions("east", "central") == LinkConditions(20 * MS, 50 * GBIT, 2_500_000_000)
    assert topology.conditions("west", "east") == LinkConditions(60 * MS, 50 * GBIT, 2_500_000_000)


def test_a_scale_applies_to_written_links_too_and_keeps_impairments_and_unlimited_rates() -> None:
    topology = resolved(
        wan={"latency": "40ms", "jitter": "1ms", "loss": "0.1%"},
        links=[{"between": ["east", "west"], "rate": "1Gbit"}],
        scale={"latency": 1.5, "rate": 3},
    )
    impairments = Impairments(jitter_ns=MS, loss=0.001)
    assert topology.conditions("east", "central") == LinkConditions(60 * MS, None, None, impairments)
    assert topology.conditions("east", "west") == LinkConditions(60 * MS, 3 * GBIT, None, impairments)


def test_a_scale_of_zero_takes_the_distance_away() -> None:
    assert resolved(profile="regions", scale={"latency": 0}).conditions("east", "west").latency_ns == 0


@pytest.mark.parametrize(
    ("topology", "text"),
    [
        ({"scale": {"latency": -1}}, "topology.scale.latency: -1 is below 0: give 0 at least"),
        ({"scale": {"rate": 0}}, "topology.scale.rate: 0 is not above 0: give more"),
        ({"scale": {"rate": True}}, "topology.scale.rate: True is not a number"),
        ({"scale": {"rat": 2}}, "topology.scale.rat: unknown field, did you mean 'rate'?"),
    ],
)
def test_a_scale_is_a_number_within_bounds(topology: dict[str, Any], text: str) -> None:
    document = {"topology": {"datacenters": [{"name": "east", "hosts": 1}], **topology}}
    line = refused(lambda: parse_model(TopologySpec, document["topology"], "file"))
    assert f"topology.{line.removeprefix('file: ')}" == text


@pytest.mark.parametrize(
    ("topology", "text"),
    [
        ({"wan": {"latency": "1ms"}, "scale": {"rate": 2}}, "topology.scale.rate: no WAN link has a rate to scale"),
        ({"wan": {"rate": "1Gbit"}, "scale": {"latency": 2}}, "topology.scale.latency: no WAN link has a latency"),
        ({"wan": {"latency": "1s"}, "scale": {"latency": 61}}, "topology.scale.latency: 61 times 1s is above the 60s"),
        ({"wan": {"rate": "5bit"}, "scale": {"rate": 0.1}}, "topology.scale.rate: 0.1 times 5bit is not within 1bit"),
        (
            {"wan": {"latency": "4ms", "jitter": "3ms"}, "scale": {"latency": 0.5}},
            "topology: the jitter between east and central, 3ms, is above their latency of 2ms",
        ),
    ],
)
def test_a_scale_without_effect_or_beyond_what_a_link_may_have_is_refused(topology: dict[str, Any], text: str) -> None:
    assert refusal(**topology).startswith(text)


def test_an_entry_with_from_and_to_is_about_that_direction_alone() -> None:
    topology = resolved(profile="regions", links=[{"from": "west", "to": "east", "latency": "50ms", "rate": "1Gbit"}])
    assert topology.conditions("west", "east") == LinkConditions(50 * MS, GBIT, 5 * GBIT)
    assert topology.conditions("east", "west") == PRESET[frozenset(("east", "west"))]
    assert topology.rtt_ns("east", "west") == topology.rtt_ns("west", "east") == 80 * MS
    assert topology.pair_in_flight_bytes("west", "east") == GBIT / 8 * 0.08


@pytest.mark.parametrize("reverse", [False, True])
def test_the_entry_of_one_direction_stands_above_that_of_both_in_any_order(reverse: bool) -> None:
    links = [
        {"between": ["east", "west"], "latency": "10ms", "loss": "1%"},
        {"from": "east", "to": "west", "latency": "30ms"},
    ]
    topology = resolved(wan={"latency": "1ms", "rate": "2Gbit"}, links=links[::-1] if reverse else links)
    loss = Impairments(loss=0.01)
    assert topology.conditions("east", "west") == LinkConditions(30 * MS, 2 * GBIT, None, loss)
    assert topology.conditions("west", "east") == LinkConditions(10 * MS, 2 * GBIT, None, loss)


def test_a_scale_and_dilation_reach_both_directions() -> None:
    links = [{"from": "east", "to": "west", "latency": "30ms", "rate": "1Gbit"}]
    topology = resolved(wan={"latency": "10ms", "rate": "2Gbit"}, links=links, scale={"latency": 2, "rate": 0.5})
    slow = topology.dilated(4)
    assert topology.conditions("east", "west") == LinkConditions(60 * MS, GBIT // 2)
    assert topology.conditions("west", "east") == LinkConditions(20 * MS, GBIT)
    assert slow.conditions("east", "west") == LinkConditions(240 * MS, GBIT // 8)
    assert slow.conditions("west", "east") == LinkConditions(80 * MS, GBIT // 4)


def test_two_directions_written_alike_are_one_link_of_the_manifest() -> None:
    links = [{"from": one, "to": other, "latency": "3ms"} for one, other in (("east", "west"), ("west", "east"))]
    alike, apart = resolved(wan={"latency": "1ms"}, links=links), resolved(wan={"latency": "1ms"}, links=links[:1])
    both = next(link for link in alike.wan if link.between == ("east", "west"))
    one = next(link for link in apart.wan if link.between == ("east", "west"))
    assert [document.get("between") for document in both.documents()] == [["east", "west"]]
    found = [(document["from"], document["to"], document["latency_ns"]) for document in one.documents()]
    assert found == [("east", "west", 3 * MS), ("west", "east", MS)]


@pytest.mark.parametrize(
    ("links", "text"),
    [
        ([{"from": "east", "to": "west"}] * 2, "topology.links.1.to: this direction has an entry already"),
        ([{"from": "east", "to": "mars"}], "topology.links.0.to: no datacenter 'mars', there are east"),
        ([{"from": "mars", "to": "east"}], "topology.links.0.from: no datacenter 'mars', there are east"),
        ([{"from": "east", "to": "east"}], "topology.links.0.to: a link joins two different datacenters"),
        ([{"between": ["east", "west"]}, {"between": ["west", "east"]}], "topology.links.1.between: this pair has an"),
        ([{"from": "east"}], "file: links.0: give either between, like [east, west], or both from and to"),
        ([{"rate": "1Gbit"}], "file: links.0: give either between, like [east, west], or both from and to"),
        (
            [{"between": ["east", "west"], "from": "east", "to": "west"}],
            "file: links.0: give either between, like [east, west], or both from and to",
        ),
        (
            [{"from": "west", "to": "east", "latency": "1ms", "jitter": "2ms"}],
            "topology: the jitter from west to east, 2ms, is above their latency of 1ms",
        ),
    ],
)
def test_a_direction_is_named_once_and_by_both_its_ends(links: list[dict[str, Any]], text: str) -> None:
    assert refusal(wan={"latency": "5ms"}, links=links).startswith(text)

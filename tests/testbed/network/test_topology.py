"""Topologies as they are resolved, and links that change: as they begin, and at their best."""

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.ground.errors import InputError
from wanbed.ground.impairments import Impairments
from wanbed.ground.strict_model import parse_model
from wanbed.testbed.network.links.wan_link import LinkConditions, course_of, link_of
from wanbed.testbed.network.topology import (
    Topology,
    as_begun,
    at_best,
    check_can_be_emulated,
    resolve_topology,
    with_flow_hosts,
)
from wanbed.testbed.network.topology_spec import MAX_HOSTS, LinkSpec, ScaleSpec, TopologySpec


def resolved(document: dict[str, Any], **given_preset: Any) -> Topology:
    return resolve_topology(parse_model(TopologySpec, document, "file"), **given_preset)


def datacenters(*names: str, hosts: int = 1) -> list[dict[str, Any]]:
    return [{"name": name, "hosts": hosts} for name in names]


def test_hosts_are_named_after_their_datacenter() -> None:
    topology = resolved(
        {"datacenters": [{"name": "east", "hosts": 2, "gpus_per_host": 8}, {"name": "west", "hosts": 1}]}
    )
    assert [(host.name, host.datacenter, host.index, host.gpus) for host in topology.hosts] == [
        ("east-0", "east", 0, 8),
        ("east-1", "east", 1, 8),
        ("west-0", "west", 0, 1),
    ]
    assert topology.host("east-1").index == 1
    assert topology.datacenter("west").index == 1


def test_an_unknown_host_is_refused_with_the_hosts_there_are() -> None:
    with pytest.raises(InputError, match="'east-9' is not in the topology: it has east-0"):
        resolved({"datacenters": datacenters("east")}).host("east-9")


def test_every_two_datacenters_are_joined_by_the_wan() -> None:
    topology = resolved(
        {
            "datacenters": datacenters("east", "central", "west"),
            "wan": {"latency": "40ms", "rate": "100Gbit", "node_pair_rate": "5Gbit", "jitter": "1ms", "loss": "0.1%"},
        }
    )
    wide = LinkConditions(40_000_000, 10**11, 5 * 10**9, Impairments(jitter_ns=1_000_000, loss=0.001))
    assert [(link.between, link.conditions) for link in topology.wan] == [
        (("east", "central"), wide),
        (("east", "west"), wide),
        (("central", "west"), wide),
    ]


def test_a_link_changes_what_it_names_and_keeps_the_rest_of_the_wan() -> None:
    topology = resolved(
        {
            "datacenters": datacenters("east", "central", "west"),
            "wan": {"latency": "40ms", "rate": "10Gbit"},
            "links": [{"between": ["west", "east"], "latency": "60ms"}],
        }
    )
    assert topology.conditions("east", "west") == LinkConditions(60_000_000, 10**10)
    assert topology.conditions("west", "east") == topology.conditions("east", "west")
    assert topology.conditions("east", "central") == LinkConditions(40_000_000, 10**10)


def test_a_path_crosses_the_wan_or_stays_inside_a_datacenter() -> None:
    topology = resolved(
        {
            "datacenters": datacenters("east", "west"),
            "intra": {"latency": "50us", "rate": "100Gbit"},
            "wan": {"latency": "40ms", "rate": "10Gbit"},
        }
    )
    assert topology.path("west", "west") == LinkConditions(50_000, 10**11)
    assert topology.path("west", "east") == topology.conditions("east", "west")


def test_a_link_can_lift_the_rate_that_the_wan_sets() -> None:
    topology = resolved(
        {
            "datacenters": datacenters("east", "west"),
            "wan": {"rate": "10Gbit"},
            "links": [{"between": ["east", "west"], "rate": "unlimited"}],
        }
    )
    assert topology.conditions("east", "west").rate_bps is None


def test_links_override_the_network_preset() -> None:
    preset = {
        frozenset(pair): LinkConditions(latency_ns=index, rate_bps=7)
        for index, pair in enumerate(combinations(("eastus", "westus", "uksouth"), 2))
    }
    topology = resolved(
        {
            "datacenters": datacenters("eastus", "westus", "uksouth"),
            "profile": "azure",
            "links": [{"between": ["eastus", "uksouth"], "latency": "1ms"}],
        },
        preset=preset,
    )
    assert topology.conditions("westus", "uksouth") == LinkConditions(2, 7)
    assert topology.conditions("eastus", "uksouth") == LinkConditions(1_000_000, 7)


def test_pair_rate_is_the_smaller_of_trunk_and_node_pair_rate() -> None:
    assert LinkConditions(rate_bps=5, node_pair_rate_bps=3).pair_rate_bps == 3
    assert LinkConditions(rate_bps=2, node_pair_rate_bps=3).pair_rate_bps == 2
    assert LinkConditions(node_pair_rate_bps=3).pair_rate_bps == 3
    assert LinkConditions().pair_rate_bps is None


def test_a_pair_has_its_rate_times_the_round_trip_in_flight() -> None:
    for rate, in_flight_bytes in (("5Gbit", 50e6), ("unlimited", None)):
        wan = {"latency": "40ms", "rate": rate}
        topology = resolved({"datacenters": datacenters("east", "west"), "wan": wan})
        assert topology.pair_in_flight_bytes("east", "west") == in_flight_bytes


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"links": [{"between": ["east", "nort"]}]}, r"links\.0\.between: no datacenter 'nort', there are east, west"),
        ({"links": [{"between": ["east", "east"]}]}, r"links\.0\.between: .*two different datacenters"),
        (
            {"links": [{"between": ["east", "west"]}, {"between": ["west", "east"]}]},
            r"links\.1\.between: this pair has an entry already",
        ),
        ({"datacenters": datacenters("east", "east")}, r"datacenters\.1\.name: 'east' is given twice"),
        (
            {"datacenters": [{"name": "a", "hosts": 1}, {"name": "a-0", "hosts": 1}, {"name": "a", "hosts": 1}]},
            r"datacenters\.2\.name",
        ),
    ],
)
def test_contradictory_topology_is_refused_in_one_line(change: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=rf"^topology\.{text}") as caught:
        resolved({"datacenters": datacenters("east", "west"), **change})
    assert "\n" not in str(caught.value)


def test_names_that_differ_by_case_only_are_refused() -> None:
    names = [{"name": "west", "hosts": 1}, {"name": "East", "hosts": 1}, {"name": "east", "hosts": 1}]
    with pytest.raises(InputError, match=r"topology.datacenters.2.name: 'east' and 'East' are one name where hosts"):
        resolve_topology(parse_model(TopologySpec, {"datacenters": names}, "file"))


def test_a_network_preset_and_a_wan_together_are_refused() -> None:
    with pytest.raises(InputError, match="a network preset replaces wan"):
        resolved({"datacenters": datacenters("a", "b"), "wan": {}, "profile": "azure"}, preset={})


def test_a_pair_that_the_network_preset_lacks_is_refused() -> None:
    with pytest.raises(InputError, match="no figures for a and b"):
        resolved({"datacenters": datacenters("a", "b"), "profile": "azure"}, preset={})


@pytest.mark.parametrize("name", ["", "-east", "a b", "east/west", "ä", "x" * 41, "east\n"])
def test_names_that_cannot_be_host_names_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"datacenters\.0\.name"):
        resolved({"datacenters": [{"name": name, "hosts": 1}]})


@pytest.mark.parametrize("hosts", [0, -1, 65_537, "many", 1.5])
def test_datacenters_have_from_1_to_65536_hosts(hosts: object) -> None:
    with pytest.raises(InputError, match=r"datacenters\.0\.hosts"):
        resolved({"datacenters": [{"name": "east", "hosts": hosts}]})


def test_an_emulated_datacenter_has_250_hosts_at_most() -> None:
    check_can_be_emulated(resolved({"datacenters": datacenters("east", "west", hosts=250), "wan": {}}))
    too_large = resolved({"datacenters": [*datacenters("east"), *datacenters("west", hosts=251)], "wan": {}})
    with pytest.raises(InputError) as refusal:
        check_can_be_emulated(too_large)
    assert str(refusal.value) == (
        "topology.datacenters.1.hosts: 251 hosts, where an emulated datacenter has 250 at most: take fewer, or simulate"
    )


def test_of_very_many_hosts_a_refusal_names_the_first() -> None:
    with pytest.raises(InputError, match=r"it has east-0, .*, east-19 and 980 more$"):
        resolved({"datacenters": datacenters("east", hosts=1000)}).host("north-0")


@given(
    st.integers(min_value=0, max_value=10**9),
    st.integers(min_value=1, max_value=10**12),
    st.floats(min_value=1, max_value=100),
)
def test_dilated_links_hold_as_many_bytes_in_flight(latency_ns: int, rate_bps: int, factor: float) -> None:
    topology = resolved(
        {
            "datacenters": datacenters("a", "b"),
            "wan": {
                "latency": f"{latency_ns}ns",
                "rate": f"{rate_bps}bit",
                "jitter": f"{latency_ns // 2}ns",
                "loss": "1%",
            },
            "intra": {"latency": "50us", "rate": "1Gbit"},
        }
    )
    slow = topology.dilated(factor)
    conditions = slow.conditions("a", "b")
    assert conditions.latency_ns == round(latency_ns * factor)
    assert conditions.rate_bps == max(1, round(rate_bps / factor))
    assert conditions.node_pair_rate_bps is None
    assert conditions.impairments == Impairments(jitter_ns=round(latency_ns // 2 * factor), loss=0.01)
    assert (slow.intra_latency_ns, slow.intra_rate_bps) == (round(50_000 * factor), round(10**9 / factor))
    assert slow.hosts == topology.hosts


def test_jitter_beyond_the_latency_is_refused() -> None:
    with pytest.raises(InputError, match=r"the jitter between a and b, 30ms, is above their latency of 20ms"):
        resolved({"datacenters": datacenters("a", "b"), "wan": {"latency": "20ms", "jitter": "30ms"}})


def test_a_latency_of_hours_is_refused() -> None:
    with pytest.raises(InputError, match=r"wan\.latency: 2000s is above the 60s that a link may have"):
        resolved({"datacenters": datacenters("a", "b"), "wan": {"latency": "2000s"}})


def test_hosts_that_serve_come_after_those_that_train_and_have_no_gpu_for_training() -> None:
    spec = parse_model(
        TopologySpec,
        {"datacenters": [{"name": "east", "hosts": 2, "gpus_per_host": 4, "serving_hosts": 2}]},
        "topology",
    )
    (east,) = resolve_topology(spec).datacenters
    assert [host.name for host in east.hosts] == ["east-0", "east-1", "east-serving-0", "east-serving-1"]
    assert [host.index for host in east.hosts] == [0, 1, 2, 3]
    assert [host.gpus for host in east.hosts] == [4, 4, 0, 0]
    assert [host.serving_gpus for host in east.serving_hosts] == [4, 4]


def test_a_network_without_some_hosts_keeps_the_addresses_of_the_others() -> None:
    topology = resolved({"datacenters": datacenters("east", "central", "west", hosts=2), "wan": {"latency": "40ms"}})
    left = topology.without({"east-0", "central-0", "central-1"})
    assert [(host.name, host.index) for host in left.hosts] == [("east-1", 1), ("west-0", 0), ("west-1", 1)]
    assert left.datacenter("west").index == 2
    assert [link.between for link in left.wan] == [("east", "west")]


def test_a_network_without_any_host_has_no_links() -> None:
    topology = resolved({"datacenters": datacenters("east", "west"), "wan": {"latency": "40ms"}})
    left = topology.without({"east-0", "west-0"})
    assert left.hosts == ()
    assert left.wan == ()


ASYMMETRIC = {
    "datacenters": datacenters("east", "west"),
    "intra": {"latency": "1ms", "rate": "2Gbit"},
    "wan": {"latency": "40ms", "rate": "1Gbit"},
    "links": [{"from": "west", "to": "east", "latency": "10ms", "rate": "unlimited", "node_pair_rate": "3Gbit"}],
}


def test_a_round_trip_has_the_latencies_of_both_directions() -> None:
    topology = resolved(ASYMMETRIC)
    assert topology.rtt_ns("east", "west") == topology.rtt_ns("west", "east") == 50_000_000
    assert topology.rtt_ns("east", "east") == 2_000_000
    assert topology.pair_in_flight_bytes("east", "west") == 1e9 / 8 * 0.05


def test_a_line_is_as_fast_as_the_slowest_of_node_pair_trunk_and_port() -> None:
    topology = resolved(ASYMMETRIC)
    assert [topology.line_rate_bps("east", "west"), topology.line_rate_bps("west", "east")] == [10**9, 2 * 10**9]
    assert [topology.line_rate_bps(each, each) for each in ("east", "west")] == [2 * 10**9] * 2
    unlimited = resolved({"datacenters": datacenters("east", "west"), "wan": {}})
    assert unlimited.line_rate_bps("east", "west") is None


def test_inside_a_datacenter_are_50_us_and_no_limit_unless_they_are_given() -> None:
    assert resolved({"datacenters": datacenters("east")}).path("east", "east") == LinkConditions(50_000, None)


def test_a_changing_link_is_told_of_and_has_its_conditions_at_every_time() -> None:
    constant = resolved(ASYMMETRIC)
    wan = {"latency": "40ms", "events": [{"at": "5s", "latency": "20ms"}, {"at": "9s", "latency": "40ms"}]}
    topology = resolved({"datacenters": datacenters("east", "west"), "wan": wan})
    slow, fast = LinkConditions(40_000_000), LinkConditions(20_000_000)
    assert (topology.changes, constant.changes) == (True, False)
    assert topology.conditions("east", "west") == slow
    assert topology.ever("east", "west") == (slow, fast)
    assert constant.ever("east", "west") == (constant.conditions("east", "west"),)
    assert topology.at(5 * 10**9).conditions("west", "east") == fast
    assert not topology.at(5 * 10**9).changes


def test_hosts_train_or_serve_or_carry_background() -> None:
    topology = resolved(
        {"datacenters": [{"name": "east", "hosts": 1, "serving_hosts": 1}, *datacenters("west")], "wan": {}}
    )
    grown = with_flow_hosts(topology, [("east", "west"), ("west", "east")])
    assert [(host.name, host.index, host.trains, host.serves) for host in grown.hosts] == [
        ("east-0", 0, True, False),
        ("east-serving-0", 1, False, True),
        ("east-background-0", 2, False, False),
        ("east-background-1", 3, False, False),
        ("west-0", 0, True, False),
        ("west-background-0", 1, False, False),
        ("west-background-1", 2, False, False),
    ]
    assert grown.wan == topology.wan
    taken = resolved({"datacenters": datacenters("east", "east-background"), "wan": {}})
    with pytest.raises(InputError, match=r"^background.0: its host would be called east-background-0"):
        with_flow_hosts(taken, [("east", "east")])


def test_hosts_of_two_datacenters_never_have_one_name() -> None:
    document = {"datacenters": [{"name": "a", "hosts": 1, "serving_hosts": 1}, *datacenters("a-serving")], "wan": {}}
    both = r"a host of 'a' and one of 'a-serving' would both be called 'a-serving-0': rename one of the datacenters"
    with pytest.raises(InputError, match=both):
        resolved(document)


@pytest.mark.parametrize(
    ("field", "least", "most", "default"), [("gpus_per_host", 1, 64, 1), ("serving_hosts", 0, 65_536, 0)]
)
def test_a_datacenter_has_its_limits(field: str, least: int, most: int, default: int) -> None:
    def parsed(**given: Any) -> int:
        spec = parse_model(TopologySpec, {"datacenters": [{"name": "east", "hosts": 1, **given}]}, "file")
        found: int = getattr(spec.datacenters[0], field)
        return found

    assert parsed() == default
    assert [parsed(**{field: value}) for value in (least, most)] == [least, most]
    for value in (least - 1, most + 1, 1.5):
        with pytest.raises(InputError, match=field):
            parsed(**{field: value})


def test_all_datacenters_together_have_a_million_hosts_and_are_250() -> None:
    sixteen = [{"name": f"dc{number}", "hosts": 65_536} for number in range(16)]
    spec = parse_model(TopologySpec, {"datacenters": sixteen}, "file")
    assert sum(each.hosts for each in spec.datacenters) == MAX_HOSTS == 1_048_576
    sixteen[0]["serving_hosts"] = 1
    with pytest.raises(InputError, match="they have 1048577 hosts together, more than 1048576"):
        parse_model(TopologySpec, {"datacenters": sixteen}, "file")
    many = datacenters(*(f"dc{number}" for number in range(251)))
    assert len(parse_model(TopologySpec, {"datacenters": many[:250]}, "file").datacenters) == 250
    for refused in (many, []):
        with pytest.raises(InputError, match="datacenters"):
            parse_model(TopologySpec, {"datacenters": refused}, "file")


def test_a_link_names_two_ends_in_one_of_two_ways() -> None:
    assert parse_model(LinkSpec, {"between": ["a", "b"]}, "links").ends == ("a", "b")
    assert parse_model(LinkSpec, {"from": "b", "to": "a"}, "links").ends == ("b", "a")
    for refused in (
        {},
        {"from": "a"},
        {"to": "a"},
        {"between": ["a", "b"], "from": "a"},
        {"between": ["a", "b"], "from": "a", "to": "b"},
    ):
        with pytest.raises(InputError, match="give either between, like"):
            parse_model(LinkSpec, refused, "links")


def test_an_mtu_is_from_576_bytes_to_9216_and_usually_1500() -> None:
    datacenters = [{"name": "east", "hosts": 1}]
    assert resolve_topology(parse_model(TopologySpec, {"datacenters": datacenters}, "topology")).mtu_bytes == 1500
    for mtu_bytes in (576, 9216):
        spec = parse_model(TopologySpec, {"datacenters": datacenters, "mtu": f"{mtu_bytes}B"}, "topology")
        assert resolve_topology(spec).mtu_bytes == mtu_bytes
    for refused in ("575B", "9217B", "9001", "unlimited", 1500):
        with pytest.raises(InputError, match="mtu"):
            parse_model(TopologySpec, {"datacenters": datacenters, "mtu": refused}, "topology")


def test_a_scale_is_a_factor_up_to_a_thousand() -> None:
    assert parse_model(ScaleSpec, {}, "scale") == ScaleSpec(latency=1, rate=1)
    assert parse_model(ScaleSpec, {"latency": 0, "rate": 1000}, "scale") == ScaleSpec(latency=0, rate=1000)
    for refused in ({"latency": -0.1}, {"latency": 1000.1}, {"rate": 0}, {"rate": 1000.1}):
        with pytest.raises(InputError, match=next(iter(refused))):
            parse_model(ScaleSpec, refused, "scale")


def test_a_link_has_a_thousand_events_at_most() -> None:
    events = [{"at": f"{number}ms", "latency": "1ms"} for number in range(1001)]
    spec = parse_model(TopologySpec, {"datacenters": datacenters("a", "b"), "wan": {"events": events[:1000]}}, "file")
    assert spec.wan is not None
    assert len(spec.wan.events) == 1000
    with pytest.raises(InputError, match="events"):
        parse_model(TopologySpec, {"datacenters": datacenters("a", "b"), "wan": {"events": events}}, "file")


MS = 10**6
FIRST = LinkConditions(20 * MS, 10**9, 10**8)
COURSE = course_of(
    [
        (0, FIRST),
        (5, LinkConditions(12 * MS, 10**8, 2 * 10**8, Impairments(jitter_ns=4 * MS))),
        (9, LinkConditions(30 * MS, 10**7, None, up=False)),
    ]
)
CHANGING = Topology((), 0, None, (link_of(("a", "b"), FIRST, FIRST, (COURSE, None)),))


def test_the_best_is_the_least_latency_with_its_jitter_and_the_highest_rates_of_any_time() -> None:
    best = at_best(CHANGING)
    assert best.conditions("a", "b") == LinkConditions(8 * MS, 10**9, None)
    assert best.conditions("b", "a") == FIRST
    assert not best.changes


def test_as_begun_has_the_first_conditions_for_ever() -> None:
    begun = as_begun(CHANGING)
    assert begun.conditions("a", "b") == FIRST
    assert not begun.changes
    assert as_begun(begun) is begun

from dataclasses import replace
from typing import Any

import pytest

from wanbed.ground.strict_model import InputError, parse_model
from wanbed.testbed.network.links.link_course import course_of
from wanbed.testbed.network.topology import Topology, resolve_topology
from wanbed.testbed.network.topology_spec import TopologySpec
from wanbed.testbed.relay.relay_config import RelayConfig
from wanbed.testbed.relay.relayed_topology import check_can_be_relayed


def topology(**wan: Any) -> Topology:
    document = {
        "datacenters": [{"name": name, "hosts": 1} for name in ("east", "west")],
        "wan": {"latency": "20ms", **wan},
    }
    return resolve_topology(parse_model(TopologySpec, document, "test"))


def test_latency_and_rates_can_be_relayed() -> None:
    check_can_be_relayed(topology(rate="1Gbit", node_pair_rate="100Mbit"))


@pytest.mark.parametrize(("wan", "name"), [({"loss": "1%"}, "loss"), ({"jitter": "1ms"}, "jitter")])
def test_an_impairment_is_refused_by_its_name_with_the_link_and_a_remedy(wan: dict[str, str], name: str) -> None:
    with pytest.raises(InputError, match=f"^--substrate relay: east to west has {name}, .*: leave it out, or use "):
        check_can_be_relayed(topology(**wan))


def test_a_configuration_is_the_same_after_it_was_written_and_read(tmp_path: Any) -> None:
    config = RelayConfig(topology(rate="1Gbit"), {"east-0": "127.2.0.2"}, {"east-0": "127.3.0.2"}, 1.5)
    config.write(tmp_path / "relay.json")
    assert RelayConfig.read(tmp_path / "relay.json") == config


def test_a_link_that_changes_is_refused_by_its_ends_with_a_remedy() -> None:
    constant = topology()
    (link,) = constant.wan
    course = course_of([(0, link.conditions), (1, replace(link.conditions, latency_ns=0))])
    changing = replace(constant, wan=(replace(link, courses=(None, course)),))
    with pytest.raises(InputError, match=r"^--substrate relay: the link from west to east changes .*, or use netem"):
        check_can_be_relayed(changing)

"""Links below 1 Mbit/s are refused on the real clock, before anything is started."""

from typing import Any

import pytest

from wanbed.ground.strict_model import InputError, parse_model
from wanbed.netem_profiles.traces.csv_trace import csv_trace
from wanbed.testbed.measurement.least_rate import check_measurable
from wanbed.testbed.network.topology import Topology, resolve_topology
from wanbed.testbed.network.topology_spec import TopologySpec


def topology(trace: str | None = None, links: list[dict[str, Any]] | None = None, **wan: Any) -> Topology:
    document = {
        "datacenters": [{"name": "dune", "hosts": 1}, {"name": "fjord", "hosts": 1}],
        "wan": {"latency": "10ms", **wan, **({} if trace is None else {"trace": "t.csv"})},
        "links": links or [],
    }
    traces = {} if trace is None else {"t.csv": csv_trace(trace, "t.csv", "t")}
    return resolve_topology(parse_model(TopologySpec, document, "test"), traces=traces)


def refusal(network: Topology, dilation: float = 1.0) -> str:
    with pytest.raises(InputError) as refused:
        check_measurable(network, dilation)
    return str(refused.value)


@pytest.mark.parametrize("rate", ["1Mbit", "100Gbit", "unlimited"])
def test_links_from_a_megabit_on_are_measured(rate: str) -> None:
    check_measurable(topology(rate=rate))


@pytest.mark.parametrize("rate", ["9600bit", "56kbit", "999kbit"])
def test_a_slower_link_is_refused_with_the_least_rate_and_the_remedy(rate: str) -> None:
    assert refusal(topology(rate=rate)) == (
        f"topology: the link from dune to fjord has {rate}: on the real clock links are measured from 1Mbit on: give "
        "more, or clock: virtual"
    )


def test_the_slower_direction_and_the_slower_node_pair_count() -> None:
    back = [{"from": "fjord", "to": "dune", "rate": "500kbit"}]
    assert "from fjord to dune has 500kbit" in refusal(topology(rate="50Mbit", links=back))
    assert "from dune to fjord has 200kbit" in refusal(topology(rate="50Mbit", node_pair_rate="200kbit"))


def test_a_rate_counts_as_dilation_leaves_it() -> None:
    check_measurable(topology(rate="10Mbit"), 10)
    assert "has 10Mbit, which dilation divides by 20: " in refusal(topology(rate="10Mbit"), 20)


def test_the_conditions_of_a_link_that_changes_count_if_they_are_measured() -> None:
    assert "has 64kbit" in refusal(topology("t_s,rate\n0,5Mbit\n10,64kbit\n20,5Mbit\n", rate="10Mbit"))
    rows = "".join(f"{second},{'64kbit' if second == 1 else f'{second + 5}Mbit'}\n" for second in range(100))
    check_measurable(topology(f"t_s,rate\n{rows}", rate="10Mbit"))


def test_a_link_that_is_down_has_no_rate() -> None:
    check_measurable(topology("t_s,rate,up\n0,5Mbit,\n10,64kbit,false\n20,5Mbit,\n", rate="10Mbit"))

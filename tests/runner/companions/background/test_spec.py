from pathlib import Path
from typing import Any

import pytest

from tests.support.refused import refused
from tests.support.runner.taken_values import taken, takes_from_to, words_of_refusal
from wanbed.runner.companions.background.spec import BackgroundSpec, OnOffSpec, check_background
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.experiment import SweepPoint

TOPOLOGY: dict[str, Any] = {
    "datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 2}],
    "wan": {"latency": "10ms", "rate": "100Mbit"},
}
COMPUTE = {"forward": "1ms", "backward": "2ms", "activation": "1KiB"}
EAST_WEST = {"name": "x", "from": "east", "to": "west"}


def written(*flows: dict[str, Any], **sections: Any) -> dict[str, Any]:
    return {"topology": TOPOLOGY, "compute": COMPUTE, "background": list(flows), **sections}


def point(*flows: dict[str, Any], directory: Path = Path(), **sections: Any) -> SweepPoint:
    (only,) = parse_experiment(written(*flows, **sections), "file", directory).points()
    return only


def refusal(*flows: dict[str, Any], directory: Path = Path(), **sections: Any) -> str:
    return refused(lambda: point(*flows, directory=directory, **sections))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"from": "eats"}, "background.0.from: no datacenter 'eats', did you mean 'east'?"),
        ({"to": "east"}, "to: 'east' is where it comes from"),
        ({"connections": 0}, "background.0.connections: 0 is not a whole number from 1 to 64"),
        ({"rate": "1Gbit", "trace": "t.csv"}, "rate: trace gives the rates"),
        ({"on_off": {"burst": "1s", "pause": "1s"}, "trace": "t.csv"}, "on_off: trace says when it sends"),
        ({"on_off": {"burst": "1ms", "pause": "1s"}}, "burst: it is below 10ms"),
        ({"on_off": {"burst": "1s", "pause": "1s", "times": "pareto"}}, "background.0.on_off.times"),
        ({"loop": True}, "loop: there is no trace"),
        ({"protocol": "udp"}, "protocol: udp does not find a rate by itself"),
        ({"protocol": "udp", "rate": "1Mbit", "connections": 2}, "connections: only TCP has that"),
        ({"rates": "1Mbit"}, "background.0.rates"),
        ({"trace": "nowhere.csv"}, "nowhere.csv: cannot be read"),
    ],
)
def test_a_flow_that_cannot_run_is_refused_with_field_and_remedy(changed: dict[str, Any], words: str) -> None:
    assert words in refusal({**EAST_WEST, **changed})


def test_names_are_given_once_and_there_are_not_too_many() -> None:
    assert "background.1.name: 'x' is given twice" in refusal(EAST_WEST, EAST_WEST)
    many = [{**EAST_WEST, "name": str(number)} for number in range(21)]
    assert "background: there are 21 flows, give 20 at most" in refusal(*many)


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"fail": [{"gateway": "west", "at": "1s"}]}, "fail.0.gateway: the flow 'x' in the background would end with"),
        ({"fail": [{"host": "east-background-0", "at": "1s"}]}, "fail.0.host: 'east-background-0' is none"),
        (
            {"variants": [{"name": "p", "program": {"command": ["true"]}}]},
            "variants.0.program: background runs beside trainings by a schedule of wanbed's ranks only",
        ),
        (
            {"topology": {**TOPOLOGY, "wan": {"latency": "1ms"}}},
            "background.0.rate: from east to west nothing limits a flow without one",
        ),
    ],
)
def test_what_no_flow_runs_beside_is_refused(sections: dict[str, Any], words: str) -> None:
    assert words in refusal(EAST_WEST, **sections)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("t_s,rate\n0,1Mbit\n0,2Mbit\n", "t.csv:3: t_s: '0' is the same time as line 2"),
        ("t_s,rate\n0,5\n", "t.csv:2: rate: '5'"),
        ("t_s,rate\n0,-5Mbit\n", "t.csv:2: rate"),
        ("t_s,rate\n0,nan\n", "t.csv:2: rate"),
        ("t_s,rate\n0,unlimited\n", "t.csv:2: rate: unlimited is no rate of a trace"),
        ("t_s,rate\n0,\n1,1Mbit\n", "t.csv:2: rate: it is empty"),
        ("t_s,rate\n0,1Mbit\n1,\n", "t.csv:3: rate: it is empty"),
        ("t_s,latency\n0,1ms\n", "t.csv:1: no column 'latency'"),
        ("t_s,rate\n", "t.csv:1: no row below the header"),
        ("", "t.csv:1: empty"),
    ],
)
def test_a_trace_that_is_wrong_is_refused_with_file_and_line(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    assert words in refusal({**EAST_WEST, "trace": "t.csv"}, directory=tmp_path)


def test_a_flow_has_a_host_of_its_own_at_both_ends_that_trains_nothing() -> None:
    own = point(EAST_WEST, {**EAST_WEST, "name": "y", "from": "west", "to": "east"})
    assert [flow.hosts for flow in own.background] == [
        ("east-background-0", "west-background-0"),
        ("west-background-1", "east-background-1"),
    ]
    training = {place.host.name for place in own.variants[0].placement.places}
    assert training == {"east-0", "east-1", "west-0", "west-1"}


def test_a_host_of_a_flow_that_would_have_the_name_of_another_is_refused() -> None:
    datacenters = [{"name": name, "hosts": 1} for name in ("east", "west", "east-background")]
    words = "background.0: its host would be called east-background-0, as another one is: rename that datacenter"
    assert words in refusal(EAST_WEST, topology={**TOPOLOGY, "datacenters": datacenters})


def test_the_cross_traffic_of_a_learnt_link_is_read_and_kept_by_a_run(tmp_path: Path) -> None:
    text = "t_s,rate\n0,12.5Mbit\n0.1,0bit\n0.2,3Mbit\n"
    (tmp_path / "cross-traffic.csv").write_text(text)
    flow = {**EAST_WEST, "trace": "cross-traffic.csv", "loop": "1s", "protocol": "udp"}
    experiment = parse_experiment(written(flow), "file", tmp_path)
    offered = experiment.points()[0].background[0].offered
    assert offered.steps == ((0, 12_500_000), (100_000_000, 0), (200_000_000, 3_000_000))
    assert offered.period_ns == 10**9
    again = parse_experiment(experiment.document(), "manifest", Path("/nowhere"))
    assert again.config_hash == experiment.config_hash
    assert again.document()["traces"] == {"cross-traffic.csv": text}


def test_a_document_without_background_has_no_such_key_and_defaults_change_no_hash() -> None:
    assert "background" not in parse_experiment({**written(), "background": []}, "file", Path()).document()
    filled = {**EAST_WEST, "connections": 1, "protocol": "tcp", "loop": False, "window": "4300KiB"}
    one, other = (parse_experiment(written(flow), "file", Path()).config_hash for flow in (EAST_WEST, filled))
    assert one == other


def test_flows_count_in_the_demand_that_decides_on_dilation() -> None:
    alone, shared = point(), point(EAST_WEST)
    assert {pair.source for pair in shared.demand.wan_pairs} - {pair.source for pair in alone.demand.wan_pairs} == {
        "east-background-0",
        "west-background-0",
    }


def test_a_flow_is_of_the_kind_that_its_fields_say() -> None:
    def flow(**fields: Any) -> BackgroundSpec:
        return BackgroundSpec.model_validate({**EAST_WEST, **fields})

    on_off = {"burst": "10ms", "pause": "10ms"}
    assert (flow().kind, flow(rate="1Mbit").kind, flow(trace="t.csv").kind) == ("bulk", "rate", "trace")
    assert (flow(on_off=on_off).kind, flow(on_off=on_off, rate="1Mbit").kind) == ("on-off", "on-off")
    assert flow(on_off=on_off).is_synthetic
    assert not flow(on_off={**on_off, "times": "constant"}).is_synthetic
    assert not flow().is_synthetic


def test_times_of_a_flow_are_10_ms_at_least() -> None:
    assert taken(OnOffSpec, "burst", "10ms", pause="10ms") == [10_000_000]
    assert "burst: it is below 10ms" in words_of_refusal(OnOffSpec, burst="9.999ms", pause="1s")
    assert "pause: it is below 10ms" in words_of_refusal(OnOffSpec, burst="1s", pause="9.999ms")


def test_what_is_left_out_is_one_connection_of_cubic_as_fast_as_it_can() -> None:
    spec = BackgroundSpec.model_validate(EAST_WEST)
    assert (spec.protocol, spec.connections, spec.congestion, spec.window) == ("tcp", 1, "cubic", 4300 * 1024)
    assert (spec.rate, spec.on_off, spec.trace, spec.loop) == (None, None, None, False)
    assert takes_from_to(BackgroundSpec, "connections", 1, 64, **EAST_WEST)


def test_a_document_of_a_flow_has_only_what_it_says_and_of_udp_nothing_of_tcp() -> None:
    def written(**fields: Any) -> dict[str, Any]:
        return BackgroundSpec.model_validate({**EAST_WEST, **fields}).model_dump(mode="json")

    tcp = {"protocol": "tcp", "connections": 1, "congestion": "cubic", "window": "4300KiB"}
    assert written() == {**EAST_WEST, **tcp}
    udp = {"protocol": "udp", "rate": "1Mbit"}
    assert written(**udp) == {**EAST_WEST, **udp}
    loop = {"trace": "t.csv", "loop": True}
    assert written(**loop) == {**EAST_WEST, **tcp, **loop}


def test_udp_needs_a_rate_or_a_trace_and_takes_nothing_of_tcp() -> None:
    def words(**fields: Any) -> str:
        return words_of_refusal(BackgroundSpec, **{**EAST_WEST, "protocol": "udp", "rate": "1Mbit", **fields})

    for name, value in (("connections", 1), ("congestion", "cubic"), ("window", "4300KiB")):
        assert f"{name}: only TCP has that" in words(**{name: value})
    assert taken(BackgroundSpec, "trace", "t.csv", protocol="udp", **EAST_WEST)
    assert "loop: there is no trace" in words_of_refusal(BackgroundSpec, **EAST_WEST, loop="1s")


def test_there_are_up_to_20_flows() -> None:
    check_background([BackgroundSpec.model_validate({**EAST_WEST, "name": str(each)}) for each in range(20)])

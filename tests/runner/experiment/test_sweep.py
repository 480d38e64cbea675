from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.support.refused import refused
from wanbed.ground.errors import InputError
from wanbed.runner.experiment.experiment_document import ExperimentDocument
from wanbed.runner.experiment.sweep import (
    MAX_SWEEP_POINTS,
    SweepPointSpec,
    combinations,
    sweep_point_specs,
    swept_paths,
    value_text,
)

PATHS = ("training.microbatches", "topology.wan.latency", "compute.forward", "variants.0.schedule", "model")


@given(st.dictionaries(st.sampled_from(PATHS), st.lists(st.integers(), min_size=1, max_size=4, unique=True)))
def test_a_sweep_has_every_combination_once(sweep: dict[str, list[int]]) -> None:
    points = [tuple(point[path] for path in sweep) for point in combinations(sweep)]
    assert len(points) == len(set(points))
    assert set(points) == set(product(*sweep.values()))


@given(st.data(), st.dictionaries(st.sampled_from(PATHS), st.lists(st.integers(), min_size=1, max_size=3, unique=True)))
def test_sweep_point_index_ignores_the_order_of_paths(data: st.DataObject, sweep: dict[str, list[int]]) -> None:
    shuffled = {path: sweep[path] for path in data.draw(st.permutations(list(sweep)))}
    assert combinations(shuffled) == combinations(sweep)


def test_without_a_sweep_there_is_one_sweep_point() -> None:
    assert combinations({}) == ({},)


def test_values_stay_in_the_order_written() -> None:
    points = combinations({"topology.wan.latency": ["40ms", "5ms"], "compute.forward": ["1ms", "2ms"]})
    assert [tuple(point.values()) for point in points] == [
        ("1ms", "40ms"),
        ("1ms", "5ms"),
        ("2ms", "40ms"),
        ("2ms", "5ms"),
    ]


@pytest.mark.parametrize(
    ("value", "text"), [("10ms", "10ms"), (4, "4"), (True, "true"), (["1ms", "2ms"], '["1ms", "2ms"]'), (None, "null")]
)
def test_values_are_shown_as_they_are_written(value: object, text: str) -> None:
    assert value_text(value) == text


@pytest.mark.parametrize(
    ("sweep", "text"),
    [
        (
            {"topology.wan.latancy": ["1ms"]},
            "topology.wan.latancy: no field 'latancy' in topology.wan, did you mean 'la",
        ),
        ({"seed": [1, 2]}, "seed: a run has one for all its sweep points"),
        ({"engine": ["emulate"]}, "engine: a run has one for all its sweep points"),
        ({"dilation": [1, 2]}, "dilation: a run has one for all its sweep points"),
        ({"sweep": [{}]}, "sweep: a run has one for all its sweep points"),
        ({"variants": [[], []]}, "variants: a run has one for all its sweep points"),
        ({"variants.0": [{}, {}]}, "variants.0: a run has one for all its sweep points"),
        ({"variants.0.name": ["a", "b"]}, "variants.0.name: a run has one for all its sweep points"),
        ({"training.stages": [2, 3, 2]}, "training.stages: the value '2' is there twice"),
        ({"name.x": [1]}, "name.x: name is a single value"),
        ({"training": [{}], "training.stages": [1]}, "training.stages: is swept by training as well"),
        ({"variants.0.options.a": ["x\ny"]}, "variants.0.options.a: the value 'x\\ny' has unprintable characters"),
    ],
)
def test_invalid_sweeps_raise_one_line(sweep: dict[str, list[Any]], text: str) -> None:
    line = refused(lambda: swept_paths(sweep, {}))
    assert line.startswith(f"sweep: {text}")
    assert line.isprintable()


def test_a_sweep_of_too_many_sweep_points_is_refused_before_it_is_expanded() -> None:
    sweep = {path: list(range(1000)) for path in PATHS}
    with pytest.raises(InputError, match=rf"sweep: {1000**5} sweep points, more than the {MAX_SWEEP_POINTS}"):
        swept_paths(sweep, {})


def test_one_link_swept_under_two_names_is_refused() -> None:
    document = {"topology": {"links": [{"between": ["east", "west"]}]}}
    for other in ("topology.links.0.latency", "topology.links[west,east].latency"):
        sweep = {"topology.links[east, west].latency": ["1ms"], other: ["2ms"]}
        with pytest.raises(InputError, match="as well, leave one of them out"):
            swept_paths(sweep, document)
    with pytest.raises(InputError, match="as well, leave one of them out"):
        swept_paths({"topology.links[a, b].rate": [1], "topology.links[b, a].rate": [2]}, {})
    assert len(swept_paths({"topology.links[a, b].rate": [1], "topology.links[b to a].rate": [2]}, {})) == 2


TWO: dict[str, Any] = {
    "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}],
    "wan": {"latency": "10ms", "rate": "1Gbit"},
}


def points(directory: Path = Path(), **document: Any) -> list[SweepPointSpec]:
    return list(sweep_point_specs(ExperimentDocument({"topology": TWO, **document}, "exp.yaml", directory)))


def refusal(directory: Path = Path(), **document: Any) -> str:
    return refused(lambda: points(directory, **document))


def test_a_sweep_over_topologies_reads_each_beside_the_experiment(tmp_path: Path) -> None:
    for name, latency in (("near.yaml", "1ms"), ("far.yaml", "90ms")):
        topology = {**TWO, "wan": {"latency": latency, "rate": "1Gbit"}}
        (tmp_path / name).write_text(yaml.safe_dump(topology), encoding="utf-8")
    swept = points(tmp_path, sweep={"topology": ["near.yaml", "far.yaml"]})
    assert [point.topology.conditions("east", "west").latency_ns for point in swept] == [1_000_000, 90_000_000]


def test_each_sweep_point_has_its_values_as_text_its_own_network_and_a_source_that_names_them() -> None:
    first, second = points(sweep={"topology.wan.latency": ["10ms", "40ms"]})
    assert [(point.index, dict(point.values)) for point in (first, second)] == [
        (0, {"topology.wan.latency": "10ms"}),
        (1, {"topology.wan.latency": "40ms"}),
    ]
    assert [point.topology.conditions("east", "west").latency_ns for point in (first, second)] == [
        10_000_000,
        40_000_000,
    ]
    assert second.source == "exp.yaml: sweep: at topology.wan.latency=40ms"
    (alone,) = points()
    assert (alone.index, dict(alone.values), alone.source) == (0, {}, "exp.yaml")


def test_a_sweep_over_costs_leaves_the_model_as_it_is_without_it() -> None:
    assert [point.spec.model is None for point in points(sweep={"compute.forward": ["1ms", "2ms"]})] == [False, False]
    assert points(compute={"forward": "1ms"})[0].spec.model is None


def test_two_writings_of_one_value_are_one_sweep_point_too_many() -> None:
    words = refusal(sweep={"topology.wan.latency": ["40ms", "10ms", "0.04s"]})
    assert words == (
        "exp.yaml: sweep: topology.wan.latency: '40ms' and '0.04s' are the same value, leave one of them out"
    )
    two = {"topology.wan.latency": ["1ms", "1000us"], "training.microbatches": [8, 16]}
    assert "topology.wan.latency: '1ms' and '1000us' are the same value" in refusal(sweep=two)
    assert len(points(sweep={**two, "topology.wan.latency": ["1ms", "2ms"]})) == 4


def test_a_value_that_is_wrong_at_one_sweep_point_is_reported_there() -> None:
    words = refusal(sweep={"training.microbatches": [8, 0]})
    assert words.startswith("exp.yaml: sweep: at training.microbatches=0: training.microbatches: 0 is not a whole")
    assert refusal(sweep={"model.hidden": [8]}, model="gpt-a").startswith("exp.yaml: sweep: model.hidden: model is the")


@pytest.mark.parametrize("field", ["wan", "profile", "scale"])
def test_one_datacenter_has_no_wan(field: str) -> None:
    values = {"wan": {"latency": "1ms"}, "profile": "paper-10ms", "scale": {"latency": 2}}
    topology = {"datacenters": TWO["datacenters"][:1], field: values[field]}
    assert f"exp.yaml: topology.{field}: one datacenter has no WAN: add a datacenter, or leave {field} out" in refusal(
        topology=topology
    )
    del topology[field]
    assert len(points(topology=topology)[0].topology.datacenters) == 1


def test_two_datacenters_need_a_network_in_both_directions() -> None:
    def words(*links: dict[str, Any]) -> str:
        return refusal(topology={"datacenters": TWO["datacenters"], "links": list(links)})

    one_way = {"from": "east", "to": "west", "latency": "1ms"}
    assert "topology.wan: no network between the datacenters is given" in words()
    assert "topology.links: there is no link from west to east: give wan for all others, like" in words(one_way)
    for links in ([{"between": ["east", "west"]}], [one_way, {"from": "west", "to": "east", "latency": "3ms"}]):
        (point,) = points(topology={"datacenters": TWO["datacenters"], "links": links})
        assert len(point.topology.datacenters) == 2
    three = [*TWO["datacenters"], {"name": "north", "hosts": 1}]
    two_of_three = [{"between": ["east", "west"]}, {"between": ["east", "north"]}]
    missing = refusal(topology={"datacenters": three, "links": two_of_three})
    assert "topology.links: there is no link between north and west: give wan" in missing
    many = [{"name": f"d{number}", "hosts": 1} for number in range(9)]
    ring = [{"between": [f"d{number}", f"d{(number + 1) % 9}"]} for number in range(9)]
    assert "between d0 and d5, between d0 and d6 and 22 more: give wan" in refusal(
        topology={"datacenters": many, "links": ring}
    )
    assert points(topology={"datacenters": three, "links": [*two_of_three, {"between": ["west", "north"]}]})


def test_a_profile_that_is_not_there_is_refused_by_its_field() -> None:
    topology = {"datacenters": TWO["datacenters"], "profile": "azur"}
    assert refusal(topology=topology).startswith("exp.yaml: topology.profile: ")
    assert "profile: profile:" not in refusal(topology=topology)


def test_both_ends_of_a_flow_are_datacenters() -> None:
    flow = {"name": "x", "from": "east", "to": "west"}
    for end, name in (("from", "eats"), ("to", "wets")):
        words = refusal(background=[flow, {**flow, "name": "y", end: name}])
        assert words.startswith(f"exp.yaml: background.1.{end}: no datacenter '{name}', did you mean")


def test_a_sweep_point_keeps_the_traces_of_its_links_and_flows(tmp_path: Path) -> None:
    rates, drift = "t_s,rate\n0,5Mbit\n", "t_s,rate\n5,50Mbit\n"
    (tmp_path / "cross.csv").write_text(rates, encoding="utf-8")
    (tmp_path / "drift.csv").write_text(drift, encoding="utf-8")
    flow = {"name": "x", "from": "east", "to": "west", "trace": "cross.csv"}
    steady = {"name": "y", "from": "east", "to": "west"}
    topology = {**TWO, "wan": {**TWO["wan"], "trace": "drift.csv"}}
    (point,) = points(tmp_path, topology=topology, background=[flow, steady])
    assert point.traces == {"cross.csv": rates, "drift.csv": drift}
    assert list(point.offered) == ["cross.csv"]
    assert points()[0].traces == {}
    assert points()[0].offered == {}

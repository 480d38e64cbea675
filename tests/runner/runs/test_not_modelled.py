"""What the simulator does not model, and that every field of an experiment has been considered."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from tests.support.runner.small_experiment import sweep_point
from wanbed.ground.errors import InputError
from wanbed.ground.exclusions import check_declared
from wanbed.results.reading.not_modelled import NotModelled
from wanbed.runner.companions.link_changes.resolution import links_that_lose_all
from wanbed.runner.emulation.network_choice import emulated_points
from wanbed.runner.experiment.experiment_document import ExperimentDocument
from wanbed.runner.experiment.experiment_spec import ExperimentSpec
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.runs.manifest import gather_manifest
from wanbed.runner.runs.not_modelled import (
    as_written,
    links_planned_without,
    links_without,
    planned_for_begin,
    planned_without,
    simulated_without,
)
from wanbed.testbed.network.topology import resolve_topology
from wanbed.testbed.network.topology_spec import TopologySpec

SIMULATOR_PAGE = Path(__file__).resolve().parents[3] / "docs" / "simulator.md"
HEADING = "## What becomes of each field"

TWO: dict[str, Any] = {
    "datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 2}],
    "wan": {"latency": "20ms", "rate": "100Mbit"},
}
TORCH: dict[str, Any] = {
    "model": "gpt-tiny",
    "compute": {"kind": "torch", "device": "cuda", "sharing": 2},
    "training": {"stages": 2, "pipelines": 2},
}


def point(**sections: Any) -> SweepPoint:
    return sweep_point({"topology": TWO, "engine": "simulate", **sections})


def found(**sections: Any) -> tuple[NotModelled, ...]:
    own = point(**sections)
    return simulated_without(own.spec, own.topology)


def wan(**conditions: str) -> dict[str, Any]:
    return {**TWO, "wan": {**TWO["wan"], **conditions}}


def variant(name: str, **transport: Any) -> dict[str, Any]:
    return {"name": name, "schedule": "gpipe", "transport": transport}


BBR_FLOW = {"name": "a", "from": "east", "to": "west", "congestion": "bbr"}
UDP_FLOW = {"name": "b", "from": "west", "to": "east", "protocol": "udp", "rate": "1Mbit"}


@pytest.mark.parametrize(
    ("sections", "lacks"),
    [
        pytest.param({}, (), id="nothing special"),
        pytest.param({"topology": wan(loss="0%", jitter="0ms")}, (), id="no loss and no jitter"),
        pytest.param(
            {"variants": [variant("a", congestion="reno"), variant("b", slow_start_after_idle=False)]},
            (),
            id="reno over links without loss",
        ),
        pytest.param({"topology": wan(loss="1%", jitter="5ms")}, (), id="loss and jitter within what was validated"),
        pytest.param(
            {"topology": wan(loss="0.1%"), "variants": [variant("a", congestion="bbr")]}, (), id="bbr over lossy links"
        ),
        pytest.param(
            {"variants": [variant("a", congestion="bbr", model="ideal")]},
            (),
            id="an ideal transport has no congestion control to miss",
        ),
        pytest.param(
            {
                "topology": {
                    "datacenters": [{"name": name, "hosts": 1} for name in ("a", "b", "c")],
                    "wan": {"latency": "20ms", "loss": "2%"},
                    "links": [{"between": ["c", "a"], "latency": "200ms", "loss": "0.25%", "jitter": "15ms"}],
                }
            },
            (
                NotModelled("topology.wan.loss", "2%, validated to 1%", (("a", "b"), ("b", "c"))),
                NotModelled("topology.wan.jitter", "15ms, validated to 5ms", (("a", "c"),)),
                NotModelled("topology.wan.latency", "200ms, validated with loss from 10ms to 80ms", (("a", "c"),)),
            ),
            id="loss and jitter beyond it, link by link as they are resolved",
        ),
        pytest.param(
            {
                "topology": wan(loss="0.01%"),
                "variants": [variant("a", connections=8), variant("b", connections=1), variant("c", congestion="bbr")],
            },
            (NotModelled("transport.congestion", "cubic, validated with loss from 0.1%", variants=("a", "b")),),
            id="cubic with hardly any loss",
        ),
        pytest.param(
            {
                "topology": wan(jitter="5ms"),
                "variants": [variant("a", connections=8), variant("b", connections=1), variant("c", congestion="bbr")],
            },
            (
                NotModelled(
                    "transport.congestion",
                    "cubic, validated for several connections with jitter to 1ms",
                    variants=("a",),
                ),
            ),
            id="cubic with much jitter over several connections",
        ),
        pytest.param(
            {"topology": {**TWO, "links": [{"from": "east", "to": "west", "loss": "3%"}]}},
            (NotModelled("topology.wan.loss", "3%, validated to 1%", directions=(("east", "west"),)),),
            id="one direction",
        ),
        pytest.param(
            {
                "topology": wan(loss="1%"),
                "variants": [
                    variant("a", congestion="reno"),
                    variant("b", model="ideal"),
                    variant("c", congestion="bbr"),
                ],
            },
            (
                NotModelled("transport.congestion", "reno", variants=("a",)),
                NotModelled("transport.model", "ideal over links with loss or jitter", variants=("b",)),
            ),
            id="reno and an ideal transport over lossy links",
        ),
        pytest.param(
            {"variants": [variant("a", congestion="bbr"), variant("b"), variant("c", congestion="bbr")]},
            (NotModelled("transport.congestion", "bbr", variants=("a", "c")),),
            id="a congestion control that sets its own pace",
        ),
        # 100 Mbit/s for 40 ms are 500 kB.
        pytest.param(
            {
                "topology": wan(node_pair_rate="100Mbit"),
                "variants": [
                    variant("a", overlap=False, window="1.4MiB"),
                    variant("b", overlap=False, window="700KiB"),
                    variant("c", overlap=False, connections=4, window="350KiB"),
                    variant("d", overlap=False, connections="auto"),
                    variant("e", window="1.4MiB"),
                ],
            },
            (NotModelled("transport.overlap", "false with windows beyond what the links hold", variants=("a", "c")),),
            id="sends that block where the network takes far more than its links hold",
        ),
        pytest.param(
            {
                "topology": wan(node_pair_rate="100Mbit"),
                "variants": [
                    variant("a", receive="blocks", window="1.4MiB"),
                    variant("b", receive="blocks", window="700KiB"),
                ],
            },
            (NotModelled("transport.receive", "blocks with windows beyond what the links hold", variants=("a",)),),
            id="requests that wait behind what the network has taken",
        ),
        pytest.param(
            {"variants": [variant("a", all_reduce="nccl"), variant("b", all_reduce="gloo")], **TORCH},
            (
                NotModelled("transport.all_reduce", "nccl", variants=("a",)),
                NotModelled("compute.sharing", "2", variants=("a", "b")),
            ),
            id="collectives of torch and GPUs that ranks share",
        ),
        pytest.param(
            {"background": [BBR_FLOW, UDP_FLOW]},
            (NotModelled("background.congestion", "bbr", directions=(("east", "west"),)),),
            id="flows in the background, with their direction",
        ),
        pytest.param(
            {"background": [BBR_FLOW, UDP_FLOW], "topology": wan(loss="1%")},
            (NotModelled("background.protocol", "udp over links with loss or jitter", directions=(("west", "east"),)),),
            id="flows in the background over lossy links",
        ),
    ],
)
def test_what_a_simulation_does_not_model_is_reported(sections: dict[str, Any], lacks: tuple[NotModelled, ...]) -> None:
    assert found(**sections) == lacks


def test_only_what_the_named_variants_ask_for_is_reported() -> None:
    own = point(topology=wan(loss="5%"), variants=[variant("a", congestion="reno"), variant("b")])
    assert simulated_without(own.spec, own.topology, ["b"]) == links_without(own.topology)


def test_a_planner_reports_what_its_simulations_do_not_model() -> None:
    auto = {**variant("a", congestion="reno"), "placement": "auto"}
    own = point(topology=wan(loss="1%"), variants=[auto, variant("b", congestion="reno")], engine="emulate")
    fields = [(each.field, each.variants) for each in planned_without(own.spec, own.topology)]
    assert fields == [("topology.wan.loss", ()), ("transport.congestion", ("a",))]
    unplanned = point(topology=wan(loss="1%"), engine="emulate")
    assert planned_without(unplanned.spec, unplanned.topology) == ()


def test_a_planner_reports_that_it_knows_nothing_of_flows_in_the_background() -> None:
    flow = {"name": "a", "from": "east", "to": "west"}
    own = point(background=[flow], variants=[{**variant("a"), "placement": "auto"}])
    assert planned_for_begin(own.spec, own.topology) == (
        NotModelled("background", "bulk", directions=(("east", "west"),)),
    )


@pytest.mark.parametrize(("engine", "key"), [("simulate", "not_modelled"), ("emulate", "planned_without")])
def test_a_manifest_reports_what_is_not_modelled(engine: str, key: str, tmp_path: Path) -> None:
    document = {
        "topology": wan(jitter="6ms"),
        "variants": [{**variant("a"), "placement": "auto"}],
        "engine": engine,
    }
    asked = parse_experiment(document, "exp.yaml", Path())
    (entry,) = gather_manifest(asked, checkout=tmp_path)["sweep_points"]
    value = "6ms, validated to 5ms" if engine == "simulate" else "6ms"
    lines = [{"field": "topology.wan.jitter", "asked": value, "links": [["east", "west"]], "variants": []}]
    assert {name: entry[name] for name in ("not_modelled", "planned_without")} == {
        "not_modelled": [],
        "planned_without": [],
        key: lines,
    }
    own = links_without if engine == "simulate" else links_planned_without
    assert lines == as_written(own(asked.points()[0].topology))


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"wan": {"latency": "20ms", "loss": "100%"}}, "topology.wan.loss"),
        ({"wan": {}, "links": [{"between": ["west", "east"], "loss": "100%"}]}, "topology.links.0.loss"),
        ({"wan": {"loss": "100%"}, "links": [{"between": ["west", "east"], "rate": "1Gbit"}]}, "topology.wan.loss"),
    ],
)
def test_a_link_that_loses_everything_is_refused_where_it_is_written(changes: dict[str, Any], field: str) -> None:
    spec = TopologySpec.model_validate({**TWO, **changes})
    with pytest.raises(InputError, match=re.escape(f"{field}: 100% between east and west: nothing arrives")):
        check_declared(links_that_lose_all(spec, resolve_topology(spec)))


def test_a_profile_that_loses_everything_is_named(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("title: x\nsource: [{figures: a, origin: b}]\ndefault: {loss: 100%}\n")
    topology = {"datacenters": TWO["datacenters"], "profile": "own.yaml"}
    with pytest.raises(InputError, match=r"exp\.yaml: topology\.profile: 100% between east and west"):
        parse_experiment({"topology": topology}, "exp.yaml", tmp_path)


def test_a_network_that_loses_everything_can_be_brought_up_for_any_program(tmp_path: Path) -> None:
    file = tmp_path / "exp.yaml"
    file.write_text("topology: {datacenters: [{name: a, hosts: 1}, {name: b, hosts: 1}], wan: {loss: 100%}}\n")
    assert emulated_points(ExperimentDocument.read(file))[0].topology.wan[0].conditions.impairments.loss == 1


def fields_of(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Every field of an experiment's file, by its path without the positions in lists."""
    for name, field in model.model_fields.items():
        below = models_in(field.annotation)
        for kind in below:
            yield from fields_of(kind, f"{prefix}{name}.")
        if not below:
            yield f"{prefix}{field.alias or name}"


def models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [kind for part in get_args(annotation) for kind in models_in(part)]


def reported_fields() -> list[str]:
    """Every path that the page's table names, those in braces written out."""
    section = SIMULATOR_PAGE.read_text(encoding="utf-8").partition(f"{HEADING}\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ") and "---" not in line][1:]
    paths = []
    for row in rows:
        for path in re.findall(r"`([^`]+)`", row.split("|")[1]):
            before, _, listed = path.partition("{")
            paths += [f"{before}{name.strip()}" for name in listed.rstrip("}").split(",")] if listed else [path]
    return paths


def test_the_page_covers_every_field_of_a_file() -> None:
    text, fields = reported_fields(), sorted(set(fields_of(ExperimentSpec)))
    assert len(fields) > 60
    assert sorted(text) == fields

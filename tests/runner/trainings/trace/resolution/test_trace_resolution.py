"""Experiments that replay a trace: what they leave out, and where ranks are placed."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.runner.chakra_traces import all_reduce, computation, write_trace
from wanbed.ground.strict_model import InputError
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.resolved_variant import ResolvedVariant

TOPOLOGY = {
    "datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 1, "gpus_per_host": 2}],
    "wan": {"latency": "20ms"},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_trace(tmp_path / "t", {rank: [computation(0, 9), all_reduce(1, 8, [0])] for rank in range(3)})
    return tmp_path


def document(**others: Any) -> dict[str, Any]:
    return {"topology": TOPOLOGY, "compute": {"trace": "t"}, **others}


def variants(folder: Path, **others: Any) -> tuple[ResolvedVariant, ...]:
    (point,) = parse_experiment(document(**others), "exp.yaml", folder).points()
    return point.variants


def places(variant: ResolvedVariant) -> list[str]:
    return [f"{place.host.name}/{place.gpu}" for place in variant.placement.places]


def refusal(folder: Path, **others: Any) -> str:
    with pytest.raises(InputError) as caught:
        parse_experiment(document(**others), "exp.yaml", folder)
    return str(caught.value)


def test_ranks_take_the_gpus_in_the_topologys_order(folder: Path) -> None:
    (variant,) = variants(folder)
    assert (variant.name, places(variant)) == ("trace", ["east-0/0", "east-1/0", "west-0/0"])


def test_variants_differ_in_transport_and_placement(folder: Path) -> None:
    written = [
        {"name": "one", "transport": {"connections": 4}},
        {"name": "two", "schedule": "trace", "placement": ["west", "east", "west"]},
    ]
    one, two = variants(folder, variants=written)
    assert one.transport.connections == 4
    assert places(two) == ["west-0/0", "east-0/0", "west-0/1"]


def test_the_ring_enters_each_datacenter_once(folder: Path) -> None:
    (variant,) = variants(folder, variants=[{"name": "v", "placement": ["east", "west", "east"]}])
    assert [[(one.stage, other.stage) for one, other in ring] for ring in variant.rings] == [[(0, 2), (2, 1), (1, 0)]]
    assert [(one.stage, other.stage) for one, other in variant.pairs] == [(0, 1), (0, 2), (1, 2)]


def test_the_hash_follows_the_contents_of_the_trace(folder: Path) -> None:
    first = parse_experiment(document(), "exp.yaml", folder).config_hash
    assert parse_experiment(document(), "exp.yaml", folder).config_hash == first
    write_trace(folder / "t", {2: [computation(0, 10), all_reduce(1, 8, [0])]})
    assert parse_experiment(document(), "exp.yaml", folder).config_hash != first


def test_the_document_reads_back_as_the_same_experiment(folder: Path) -> None:
    experiment = parse_experiment(document(), "exp.yaml", folder)
    assert parse_experiment(experiment.document(), "exp.yaml", folder).config_hash == experiment.config_hash


def test_a_trace_can_be_swept(folder: Path) -> None:
    write_trace(folder / "u", {0: [computation(0, 5)]})
    experiment = parse_experiment(document(sweep={"compute.trace": ["t", "u"]}), "exp.yaml", folder)
    assert [len(point.variants[0].placement.places) for point in experiment.points()] == [3, 1]


@pytest.mark.parametrize(
    ("others", "text"),
    [
        ({"compute": {"trace": "t", "forward": "5ms"}}, "compute: forward: the trace has its own times and sizes"),
        ({"compute": {"trace": "t", "profile": "a100"}}, "compute: profile: the trace has its own times and sizes"),
        ({"compute": {"trace": "t", "kind": "torch"}}, "compute: trace: only kind: replay replays a trace"),
        ({"compute": {"trace": "u"}}, "/u: is no folder: give the folder of a Chakra trace"),
        ({"model": "gpt-a"}, "model: the trace has its own: leave model out"),
        ({"training": {"stages": 2}}, "training.stages: the trace has its own ranks and work: leave stages out"),
        (
            {"variants": [{"name": "v", "training": {"pipelines": 1}}]},
            "variants.0.training.pipelines: the trace has its own ranks and work: leave pipelines out",
        ),
        ({"training": {"microbatches": 2}}, "training.microbatches: the trace has its own ranks and work"),
        ({"variants": [{"name": "v", "schedule": "gpipe"}]}, "variants.0.schedule: compute.trace has its own order"),
        ({"variants": [{"name": "v", "options": {"a": 1}}]}, "variants.0.options: a trace takes none"),
        ({"variants": [{"name": "v", "placement": "auto"}]}, "variants.0.placement: auto: the planner places stages"),
        ({"variants": [{"name": "v", "placement": ["east"]}]}, "variants.0.placement: ['east'] for 3 ranks: name one"),
        (
            {"variants": [{"name": "v", "transport": {"sharing": "temporal"}}]},
            "variants.0.transport.sharing: temporal: each message of a trace goes over the connections of its own two",
        ),
        (
            {"variants": [{"name": "v", "transport": {"overlap": False}}]},
            "variants.0.transport.overlap: false: the trace has its own order of computations and messages: leave",
        ),
        (
            {"variants": [{"name": "v", "transport": {"all_reduce": "nccl"}}]},
            "variants.0.transport.all_reduce: nccl all-reduces what torch computes",
        ),
        (
            {"variants": [{"name": "v", "transport": {"all_reduce_overlap": True}}]},
            "variants.0.transport.all_reduce_overlap: the trace has its own all-reduces",
        ),
        (
            {"topology": {"datacenters": [{"name": "east", "hosts": 2}]}},
            "compute.trace: it has 3 ranks, and the hosts have 2 GPUs: add hosts or GPUs",
        ),
        (
            {"compute": {"forward": "5ms", "activation": "1MiB"}, "variants": [{"name": "v", "schedule": "trace"}]},
            "variants.0.schedule: give compute.trace, which it replays, or another schedule",
        ),
        ({"training": {"iterations": 10_000}, "compute": {"trace": "long"}}, "compute.trace: one after the other, all"),
    ],
)
def test_what_does_not_go_with_a_trace_is_refused_in_one_line(folder: Path, others: dict[str, Any], text: str) -> None:
    day_us = 86_400 * 10**6
    write_trace(folder / "long", {0: [computation(number, day_us) for number in range(5)]})
    refused = refusal(folder, **others)
    assert refused.startswith("exp.yaml: ")
    assert text in refused
    assert "\n" not in refused


def test_an_emulation_takes_one_group_a_rank(tmp_path: Path) -> None:
    ranks = {
        rank: [computation(0, 9), *(all_reduce(number, 8, group=f"g{number}") for number in (1, 2))] for rank in (0, 1)
    }
    write_trace(tmp_path / "t", ranks)
    assert refusal(tmp_path) == (
        "exp.yaml: compute.trace: rank 0 has collectives in 2 groups, and an emulation replays one group of a rank: "
        "give engine: simulate"
    )
    assert variants(tmp_path, engine="simulate")

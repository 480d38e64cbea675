from typing import Any

import pytest

from tests.support.present import present
from tests.support.refused import refused
from tests.support.runner.taken_values import taken, takes_from_to, words_of_refusal
from wanbed.ground.errors import InputError
from wanbed.ground.strict_model import parse_model
from wanbed.runner.experiment.experiment_spec import ExperimentSpec
from wanbed.runner.experiment.model_spec import NAMED_MODELS
from wanbed.runner.experiment.transport_spec import TransportSpec
from wanbed.workloads.gpt.gpt_config import GptConfig

TOPOLOGY: dict[str, Any] = {"datacenters": [{"name": "east", "hosts": 2}]}


def parsed(**fields: Any) -> ExperimentSpec:
    return parse_model(ExperimentSpec, {"topology": TOPOLOGY, **fields}, "exp.yaml")


def variant(**fields: Any) -> list[dict[str, Any]]:
    return [{"name": "a", "schedule": "gpipe", **fields}]


def test_the_topology_alone_is_an_experiment() -> None:
    spec = parsed()
    assert (spec.engine, spec.clock, spec.dilation, spec.repeats, spec.seed) == ("emulate", "real", "auto", 1, 0)
    assert [(entry.name, entry.schedule, entry.transport.connections) for entry in spec.variants] == [
        ("gpipe", "gpipe", 1)
    ]
    assert spec.model == NAMED_MODELS["gpt-a"]


def test_a_model_written_in_numbers_is_the_model_of_that_name() -> None:
    numbers = {"layers": 12, "hidden": 4096, "context": 4096, "heads": 32, "vocabulary": 50304}
    assert parsed(model=numbers).model == NAMED_MODELS["gpt-a"]
    assert parsed(model=numbers).document()["model"] == "gpt-a"
    assert parsed(model={"hidden": 8, "context": 4}).document()["model"]["hidden"] == 8


def test_file_paths_may_be_long() -> None:
    path = "/".join(["folder"] * 50)
    spec = parsed(
        compute={"kind": "torch", "profile": path},
        training={"text": path},
        prefill={"trace": path, "profile": path},
    )
    assert (spec.compute.profile, spec.training.text) == (path, path)
    assert spec.prefill is not None
    assert (spec.prefill.trace, spec.prefill.profile) == (path, path)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"model": "gpt-c"}, "model: 'gpt-c' is no model: known are gpt-a, gpt-b, gpt-tiny, or give its hidden"),
        ({"model": 7}, "model: 7 is no model"),
        ({"model": {"hidden": 8}}, "model.context: this field is required"),
        ({"model": {"hidden": 0, "context": 8}}, "model.hidden: 0 is not a whole number from 1 to "),
        ({"model": {"hiden": 8, "context": 8}}, "model.hiden: unknown field, did you mean 'hidden'?"),
        ({"compute": {"kind": "jax"}}, "compute.kind: 'jax' is not known: give 'replay' or 'torch'"),
        ({"compute": {"profile": 100}}, "compute.profile: 100 is not text: put it in quotes"),
        ({"compute": {"kind": "torch", "threads": 0}}, "compute.threads: 0 is not a whole number from 1 to 1024"),
        (
            {"compute": {"kind": "torch", "check_iteration": -1}},
            "compute.check_iteration: -1 is not a whole number from",
        ),
        ({"compute": {"deterministic": True}}, "compute.deterministic: only torch computes on a device"),
        ({"compute": {"check_iteration": 0}}, "compute.check_iteration: only torch computes on a device"),
        ({"compute": {"forward": 50}}, "compute.forward: 50 has no unit: write a duration like 40ms"),
        ({"compute": {"forward": "-1ms"}}, "compute.forward: '-1ms' is negative"),
        ({"compute": {"backward": ["1ms", "2Gbit"]}}, "compute.backward: entry 1: '2Gbit' has the unit 'Gbit'"),
        ({"compute": {"activation": "0B"}}, "compute.activation: '0B' is nothing to send: give at least 1B"),
        ({"compute": {"activation": "1ms"}}, "compute.activation: '1ms' has the unit 'ms', not one of a size"),
        ({"training": {"pipelines": 0}}, "training.pipelines: 0 is not a whole number from 1 to 1024"),
        ({"training": {"precision": "fp8"}}, "training.precision: 'fp8' is not known: give 'bf16', 'fp16' or 'fp32'"),
        ({"training": {"learning_rate": 2}}, "training.learning_rate: 2 is no learning rate: give a number above 0"),
        ({"training": {"memory_bound": 0}}, "training.memory_bound: 0 is not a whole number from 1 to"),
        ({"training": {"stages": 0}}, "training.stages: 0 is not a whole number from 1 to 1024"),
        ({"training": {"stages": "4"}}, "training.stages: '4' is not a whole number"),
        ({"training": {"microbatches": True}}, "training.microbatches: true is not a whole number"),
        ({"training": {"iterations": 2.5}}, "training.iterations: 2.5 is not a whole number"),
        ({"training": {"warmup": -1}}, "training.warmup: -1 is not a whole number from 0 to"),
        ({"variants": []}, "variants: there are 0, give 1 to 100"),
        ({"variants": variant() + variant()}, "variants: two variants are named 'a', give each its own name"),
        ({"variants": variant(name="x" * 81)}, "variants.0.name: 'xxx"),
        ({"compute": {"profile": "x" * 4096}}, "compute.profile: 'xxx"),
        ({"compute": {"profile": " "}}, "compute.profile: ' ' is no name or path: give 1 to 4095 printable"),
        ({"variants": variant(name="a\nb")}, "variants.0.name: 'a\\nb' is no name: give 1 to 80 printable"),
        ({"variants": variant(name="  ")}, "variants.0.name: '  ' is no name"),
        ({"variants": variant(name=5)}, "variants.0.name: 5 is not text: put it in quotes"),
        ({"variants": variant(placement="atuo")}, "variants.0.placement: 'atuo' is not run here, give a list"),
        (
            {"variants": variant(transport={"connections": 0})},
            "variants.0.transport.connections: 0 is neither auto nor",
        ),
        ({"variants": variant(transport={"connections": True})}, "variants.0.transport.connections: true is neither"),
        ({"variants": variant(transport={"connections": 65})}, "variants.0.transport.connections: 65 is neither auto"),
        (
            {"variants": variant(transport={"window": "1B"})},
            "variants.0.transport.window: '1B' is not from 4KiB to 511MiB",
        ),
        ({"variants": variant(transport={"window": 65536})}, "variants.0.transport.window: 65536 has no unit"),
        (
            {"variants": variant(transport={"congestion": "B B"})},
            "variants.0.transport.congestion: 'B B' is no congest",
        ),
        (
            {"variants": variant(transport={"slow_start_after_idle": 0})},
            "variants.0.transport.slow_start_after_idle: 0",
        ),
        (
            {"variants": variant(placement=["east", ["east"]])},
            "variants.0.placement: ['east', ['east']] is not run here",
        ),
        (
            {"variants": variant(transport={"sharing": "spatial"})},
            "variants.0.transport.sharing: 'spatial' is not known: give 'none' or 'temporal'",
        ),
        (
            {"variants": variant(transport={"pipelines_per_cell": 2})},
            "variants.0.transport.pipelines_per_cell: only pipelines that share form DP-cells: give sharing: temporal",
        ),
        (
            {"variants": variant(transport={"sharing": "temporal", "pipelines_per_cell": 0})},
            "variants.0.transport.pipelines_per_cell: 0 is neither auto nor a whole number from 1 to 1024",
        ),
        ({"variants": variant(training={"iterations": 2})}, "variants.0.training.iterations: unknown field"),
        (
            {"variants": variant(transport={"model": "perfect"})},
            "variants.0.transport.model: 'perfect' is not known: give 'auto', 'packets', 'mean' or 'ideal'",
        ),
        ({"sweep": {"training.stages": []}}, "sweep: training.stages: [] is no list of values, write it like [10ms"),
        ({"sweep": {"training.stages": 3}}, "sweep: training.stages: 3 is no list of values"),
        ({"sweep": ["training.stages"]}, "sweep: give a mapping of paths to lists"),
        ({"repeats": 0}, "repeats: 0 is not a whole number from 1 to 1000"),
        ({"seed": -1}, "seed: -1 is not a whole number from 0"),
        ({"engine": "cluster"}, "engine: 'cluster' is not known: give 'emulate', 'rack' or 'simulate'"),
        ({"clock": "wall"}, "clock: 'wall' is not known: give 'real' or 'virtual'"),
        ({"dilation": 0.5}, "dilation: 0.5 is neither auto nor a number from 1 to 100"),
        ({"dilation": 101}, "dilation: 101 is neither auto nor a number"),
        ({"dilation": float("nan")}, "dilation: nan is neither auto nor a number"),
        ({"dilation": True}, "dilation: true is neither auto nor a number"),
        ({"prefil": {}}, "prefil: unknown field, did you mean 'prefill'?"),
        ({"prefill": {}}, "prefill.rate: poisson arrivals need one, write it like 4/s"),
        ({"varients": []}, "varients: unknown field, did you mean 'variants'?"),
    ],
)
def test_unknown_fields_and_values_raise_one_line(fields: dict[str, Any], text: str) -> None:
    line = refused(lambda: parsed(**fields))
    # The first letter of a message is set in lower case, so that Python's True and False are as in YAML.
    assert line.startswith(f"exp.yaml: {text}")


def test_the_topology_is_required() -> None:
    with pytest.raises(InputError, match=r"^exp\.yaml: topology: this field is required$"):
        parse_model(ExperimentSpec, {}, "exp.yaml")


def test_document_has_compute_options_only_if_given() -> None:
    assert "options" not in parsed().document()["compute"]
    with pytest.raises(InputError, match=r"^exp\.yaml: compute\.options: .*no option 'size': it takes none$"):
        parsed(compute={"options": {"size": 2}})


def test_document_has_deterministic_kernels_only_if_they_are_asked_for() -> None:
    torch = {"kind": "torch", "device": "cpu"}
    document = parsed(compute=torch).document()
    assert "deterministic" not in document["compute"]
    assert parsed(compute={**torch, "deterministic": False}).document() == document
    asked = parsed(compute={**torch, "deterministic": True}).document()
    assert asked["compute"] == {**document["compute"], "deterministic": True}


def test_document_fills_in_defaults_and_reads_back() -> None:
    spec = parsed(
        compute={"forward": ["1ms", "2ms"], "activation": "3MiB"},
        variants=variant(placement=["east", "east"], options={"depth": [1, {"a": None}]}, transport={"window": "4MiB"}),
        sweep={"topology.intra.latency": ["1ms", "2ms"]},
        dilation=2,
    )
    document = spec.document()
    assert parse_model(ExperimentSpec, document, "manifest") == spec
    assert document["compute"]["forward"] == ["1ms", "2ms"]
    assert document["variants"][0]["transport"] == {
        "model": "auto",
        "connections": 1,
        "window": "4MiB",
        "congestion": "cubic",
        "slow_start_after_idle": True,
        "sharing": "none",
        "pipelines_per_cell": "auto",
        "all_reduce": "ring",
    }


def test_overlap_is_written_only_where_it_is_asked_for() -> None:
    transport = {"all_reduce_overlap": True, "bucket": "5MiB"}
    assert TransportSpec.model_validate(transport).model_dump(mode="json").items() >= transport.items()
    nested = transport | {"all_reduce": "hierarchical"}
    assert TransportSpec.model_validate(nested).model_dump(mode="json").items() >= nested.items()
    written = TransportSpec.model_validate({"all_reduce_overlap": False}).model_dump(mode="json")
    assert transport.keys().isdisjoint(written)


def test_a_bucket_has_at_least_4_kib() -> None:
    overlap = {"all_reduce_overlap": True}
    assert TransportSpec.model_validate(overlap | {"bucket": "4KiB"})
    with pytest.raises(ValueError, match="is below 4KiB"):
        TransportSpec.model_validate(overlap | {"bucket": "4095B"})


def test_the_named_models_are_the_papers_two_and_a_tiny_one() -> None:
    numbers = {name: (model.layers, model.hidden, model.context, model.heads) for name, model in NAMED_MODELS.items()}
    assert numbers == {"gpt-a": (12, 4096, 4096, 32), "gpt-b": (12, 8192, 6144, 64), "gpt-tiny": (4, 128, 128, 4)}


def test_counts_of_the_whole_file_are_taken_from_end_to_end_of_their_range() -> None:
    for field, least, most in (("repeats", 1, 1000), ("seed", 0, 2**63 - 1), ("checkpoint_every", 1, 10_000)):
        assert takes_from_to(ExperimentSpec, field, least, most, topology=TOPOLOGY), field
    assert taken(ExperimentSpec, "dilation", 1, 100, "auto", topology=TOPOLOGY) == [1.0, 100.0, "auto"]
    for written in (0.99, 100.1, "2", False):
        assert "is neither auto nor a number from 1 to 100" in words_of_refusal(
            ExperimentSpec, topology=TOPOLOGY, dilation=written
        )


def test_names_have_up_to_80_characters_and_paths_up_to_4095() -> None:
    assert parsed(name="x" * 80).name == "x" * 80
    assert "give 1 to 80 printable" in words_of_refusal(ExperimentSpec, topology=TOPOLOGY, name="x" * 81)
    assert parsed(compute={"profile": "x" * 4095}).compute.profile == "x" * 4095
    assert parsed(name="x").name == "x"


def test_there_are_up_to_100_variants_and_faults() -> None:
    many = [{**variant()[0], "name": str(each)} for each in range(101)]
    assert len(parsed(variants=many[:100]).variants) == 100
    assert "variants: there are 101, give 1 to 100" in words_of_refusal(
        ExperimentSpec, topology=TOPOLOGY, variants=many
    )
    fault = {"host": "east-0", "at": "1s"}
    assert len(parsed(fail=[fault] * 100).fail) == 100
    assert "fail: there are 101, give 100 at most" in words_of_refusal(
        ExperimentSpec, topology=TOPOLOGY, fail=[fault] * 101
    )


@pytest.mark.parametrize(
    ("compute", "known"),
    [
        ({}, True),
        ({"profile": "a100"}, True),
        ({"profile": "a100", "activation": "1MiB"}, True),
        ({"kind": "torch"}, True),
        ({"forward": "1ms"}, False),
        ({"optimizer": "0ms"}, False),
        ({"gradient": "1MiB"}, False),
        ({"forward": None}, True),
    ],
)
def test_a_model_is_assumed_unless_the_file_states_costs_of_the_stages(compute: dict[str, Any], known: bool) -> None:
    assert (parsed(compute=compute).model is not None) is known
    assert parsed(compute=compute, model="gpt-b").model == NAMED_MODELS["gpt-b"]


def test_a_trace_has_no_model_and_is_replayed_by_variants_without_a_schedule() -> None:
    compute = {"trace": "t"}
    alone = parsed(compute=compute)
    assert alone.model is None
    assert [(each.name, each.schedule) for each in alone.variants] == [("trace", "trace")]
    more = parsed(compute=compute, variants=[{"name": "a"}, {"name": "mine", "program": {"command": ["true"]}}])
    assert [each.schedule for each in more.variants] == ["trace", "program"]
    assert parsed(compute={"trace": None}).variants[0].schedule == "gpipe"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"variants": variant(schedule="trace")}, "variants.0.schedule: give compute.trace, which it replays"),
        (
            {"compute": {"trace": "t"}, "variants": [{"name": "b"}, *variant()]},
            "variants.1.schedule: compute.trace has its own order of work",
        ),
        ({"compute": {"trace": "t"}, "variants": 3}, "variants: "),
        ({"compute": {"trace": "t"}, "variants": ["a"]}, "variants.0: "),
        ({"variants": variant(pool=1)}, "variants.0.pool: there is no section prefill"),
        ({"variants": [*variant(), {**variant()[0], "name": "b", "prefill": "planned"}]}, "variants.1.prefill: there"),
        ({"background": [{"name": "x", "from": "a", "to": "b"}] * 2}, "background.1.name: 'x' is given twice"),
        ({"sweep": {"seed": {}}}, "sweep: seed: {} is no list of values"),
    ],
)
def test_sections_that_do_not_go_together_are_refused(fields: dict[str, Any], words: str) -> None:
    assert words in words_of_refusal(ExperimentSpec, topology=TOPOLOGY, **fields)


def test_a_variant_that_does_not_prefill_needs_no_section_prefill() -> None:
    assert parsed(variants=variant(prefill="none", pool=0)).variants[0].prefill == "none"
    assert parsed(variants=variant(prefill="planned", pool=2), prefill={"rate": "4/s"}).variants[0].pool == 2


def test_the_document_keeps_every_section_that_says_something_and_no_other_key() -> None:
    later = {"scale", "jobs", "background", "traces", "fail", "recovery", "checkpoint_every"}
    plain = parsed().document()
    assert not later & (plain.keys() | plain["topology"].keys())
    sections: dict[str, Any] = {
        "background": [{"name": "x", "from": "east", "to": "west"}],
        "traces": {"a.csv": "t_s,rate\n0,1Gbit\n"},
        "fail": [{"rank": 0, "at": "1s"}, {"gateway": "east", "at": "2s"}],
        "recovery": "restart",
        "checkpoint_every": 5,
    }
    document = parsed(**sections).document()
    assert document.keys() - plain.keys() == sections.keys()
    assert document["background"][0].items() >= sections["background"][0].items()
    assert {name: document[name] for name in sections if name != "background"} == {
        name: sections[name] for name in sections if name != "background"
    }


def test_the_documents_links_have_only_what_was_written() -> None:
    topology: dict[str, Any] = {
        "datacenters": [*TOPOLOGY["datacenters"], {"name": "west", "hosts": 1}],
        "wan": {"latency": "1ms"},
        "links": [{"from": "east", "to": "west", "rate": "1Gbit"}],
        "scale": {"latency": 2},
    }
    document = parsed(topology=topology).document()["topology"]
    assert document["links"] == topology["links"]
    assert document["scale"]["latency"] == 2
    assert document["wan"].keys() == {"latency", "rate", "node_pair_rate", "jitter", "loss"}
    changing: dict[str, Any] = {**topology, "wan": {"latency": "1ms", "events": [{"at": "1s", "latency": "2ms"}]}}
    assert parsed(topology=changing).document()["topology"]["wan"]["events"] == changing["wan"]["events"]


def test_a_model_has_a_configuration_once_all_its_dimensions_are_known() -> None:
    whole = {"layers": 2, "hidden": 8, "context": 4, "heads": 2, "vocabulary": 16}
    assert present(parsed(model=whole).model).config == GptConfig(2, 8, 4, 2, 16)
    for name in ("layers", "heads", "vocabulary"):
        rest = present(parsed(model={other: value for other, value in whole.items() if other != name}).model)
        assert rest.config is None

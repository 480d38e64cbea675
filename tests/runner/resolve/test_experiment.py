import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.runner.small_experiment import SMALL, parsed, small
from tests.support.runner.two_jobs import two_jobs
from wanbed.ground.errors import InputError
from wanbed.runner.planner.experiment_file import load_experiment


def written(folder: Path, document: object, name: str = "exp.yaml") -> Path:
    path = folder / name
    path.write_text(document if isinstance(document, str) else yaml.safe_dump(document), encoding="utf-8")
    return path


def refusal(path: Path, *overrides: str) -> str:
    before = sorted(path.parent.iterdir()) if path.parent.is_dir() else []
    with pytest.raises(InputError) as caught:
        load_experiment(path, overrides)
    assert before == (sorted(path.parent.iterdir()) if path.parent.is_dir() else [])
    text = str(caught.value)
    assert text.isprintable()
    return text


def test_a_sweep_point_has_nothing_left_to_default(tmp_path: Path) -> None:
    experiment = load_experiment(written(tmp_path, small(training={"microbatches": 4}), "quick look.yaml"))
    assert experiment.name == "quick look"
    (point,) = experiment.points()
    assert (point.index, point.values) == (0, {})
    (variant,) = point.variants
    assert variant.work.forward_ns == (10_000_000,) * 4
    assert variant.work.backward_ns == (20_000_000,) * 4
    assert variant.work.recompute_ns == (0,) * 4
    assert variant.work.activation_bytes == (2**20,) * 3
    assert point.topology.conditions("east", "west").latency_ns == 40_000_000
    assert [place.host.name for place in point.variants[0].placement.places] == ["east-0", "east-1", "west-0", "west-1"]
    assert point.demand.total_bps == 2 * 10**9


def test_written_costs_are_those_of_no_model_unless_one_is_named() -> None:
    (point,) = parsed(small(training={"stages": 4, "microbatches": 4})).points()
    assert (point.spec.model, point.tokens_per_iteration) == (None, None)
    (point,) = parsed(small(training={"stages": 4, "microbatches": 4}, model="gpt-tiny")).points()
    assert point.tokens_per_iteration == 4 * 128


def test_more_stages_than_the_default_model_has_layers_compute_written_costs() -> None:
    hosts = [{"name": "east", "hosts": 16}, {"name": "west", "hosts": 16}]
    (point,) = parsed(small(topology={**SMALL["topology"], "datacenters": hosts})).points()
    assert point.variants[0].work.stages == 32


def test_a_sweep_over_costs_keeps_the_model_of_the_file() -> None:
    points = parsed({"topology": SMALL["topology"], "sweep": {"compute.forward": ["1ms", "2ms"]}}).points()
    assert [point.tokens_per_iteration for point in points] == [16 * 4096] * 2


def test_dilated_times_are_longer_and_send_as_much() -> None:
    compute = {"forward": "3ms", "recompute": "1ms", "optimizer": "2ms", "activation": "1MiB"}
    (variant,) = parsed(small(compute=compute)).points()[0].variants
    slow = variant.costs(0, 0, 2.5)
    durations = slow.durations
    assert (durations.forward_ns, durations.backward_ns, durations.recompute_ns) == (7_500_000, 15_000_000, 2_500_000)
    assert (durations.backward_weight_ns, durations.optimizer_ns) == (7_500_000, 5_000_000)
    assert slow.sizes == variant.costs(0, 0).sizes


def test_the_activation_follows_from_the_model() -> None:
    (point,) = parsed(small(compute={}, model="gpt-b")).points()
    assert point.variants[0].work.activation_bytes == (96 * 2**20,) * 3


def test_lists_hold_one_entry_a_stage_and_activations_one_a_boundary() -> None:
    times = {"forward": ["1ms", "2ms", "3ms"], "backward": ["4ms"] * 3, "recompute": "1ms", "activation": ["1B", "2B"]}
    (point,) = parsed(small(compute=times, training={"stages": 3})).points()
    assert point.variants[0].work.forward_ns == (1_000_000, 2_000_000, 3_000_000)
    assert point.variants[0].work.activation_bytes == (1, 2)


def test_a_single_stage_has_no_boundary() -> None:
    (point,) = parsed(small(training={"stages": 1}, compute={"activation": []})).points()
    assert point.variants[0].work.activation_bytes == ()
    assert point.demand.total_bps == 0


def test_fewer_stages_than_datacenters_are_fine() -> None:
    (point,) = parsed(small(training={"stages": 1})).points()
    assert [place.host.name for place in point.variants[0].placement.places] == ["east-0"]


def test_a_sweep_makes_a_sweep_point_of_each_combination() -> None:
    sweep = {"topology.wan.latency": ["10ms", "40ms"], "training.microbatches": [2, 4]}
    points = parsed(small(sweep=sweep)).points()
    assert [(point.index, dict(point.values)) for point in points] == [
        (0, {"topology.wan.latency": "10ms", "training.microbatches": "2"}),
        (1, {"topology.wan.latency": "10ms", "training.microbatches": "4"}),
        (2, {"topology.wan.latency": "40ms", "training.microbatches": "2"}),
        (3, {"topology.wan.latency": "40ms", "training.microbatches": "4"}),
    ]
    assert [point.topology.wan[0].conditions.latency_ns // 10**6 for point in points] == [10, 10, 40, 40]
    assert [point.spec.training.microbatches for point in points] == [2, 4, 2, 4]


def test_a_swept_value_reaches_what_follows_from_it() -> None:
    points = parsed(small(sweep={"compute.forward": ["1ms", "2ms"]})).points()
    assert [point.variants[0].work.backward_ns[0] for point in points] == [2_000_000, 4_000_000]


def test_a_preset_is_swept_by_its_scale() -> None:
    topology = {"datacenters": [{"name": name, "hosts": 1} for name in ("eastus", "westeurope")], "profile": "azure"}
    sweep = {"topology.scale.latency": [1, 2], "topology.scale.rate": [1, 0.5]}
    points = parsed({**SMALL, "topology": topology, "training": {"stages": 2}, "sweep": sweep}).points()
    links = [point.topology.conditions("eastus", "westeurope") for point in points]
    first = links[0]
    assert [link.latency_ns / first.latency_ns for link in links] == [1, 1, 2, 2]
    assert [link.pair_rate_bps / first.pair_rate_bps for link in links if link.pair_rate_bps] == [1, 0.5, 1, 0.5]


@pytest.mark.parametrize(
    ("path", "values", "names"),
    [
        ("topology.wan.latency", ["1ms", "2ms", "1000us"], "'1ms' and '1000us'"),
        ("training.microbatches", [2, "2"], "'2'"),
        ("topology.wan", [{"latency": "1ms"}, {"latency": "1000us"}], """'{"latency": "1ms"}' and"""),
    ],
)
def test_a_value_written_in_two_ways_is_one_sweep_point_too_many(path: str, values: list[Any], names: str) -> None:
    sweep = {path: values, "compute.optimizer": ["1ms", "2ms"]}
    with pytest.raises(InputError, match=f"exp.yaml: sweep: {path}: .*{re.escape(names)}.*, leave one of them out"):
        parsed(small(sweep=sweep))


def test_a_swept_wan_is_what_a_link_leaves_out() -> None:
    topology = {**SMALL["topology"], "links": [{"between": ["east", "west"], "rate": "5Mbit"}]}
    experiment = parsed(small(topology=topology, sweep={"topology.wan.latency": ["1ms", "2ms"]}))
    again = parsed(experiment.document())
    for points in (experiment.points(), again.points()):
        assert [point.topology.wan[0].conditions.latency_ns for point in points] == [1_000_000, 2_000_000]
        assert {point.topology.wan[0].conditions.rate_bps for point in points} == {5_000_000}


def test_overrides_come_before_everything_else(tmp_path: Path) -> None:
    path = written(tmp_path, small(sweep={"topology.wan.latency": ["1ms"]}))
    experiment = load_experiment(path, ["topology.datacenters.1.hosts=7", "sweep={}", "name=other", "repeats=3"])
    assert len(experiment.points()[0].topology.hosts) == 9
    assert (experiment.name, experiment.spec.repeats, dict(experiment.spec.sweep)) == ("other", 3, {})


def test_a_topology_can_stand_in_a_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "nets").mkdir()
    written(tmp_path, SMALL["topology"], "nets/two.yaml")
    written(tmp_path, {**SMALL["topology"], "wan": {"latency": "1ms"}}, "nets/near.yaml")
    path = written(tmp_path, small(topology="nets/two.yaml"))
    assert load_experiment(path).document() == {**parsed(SMALL).document(), "name": "exp"}
    assert (
        load_experiment(path, ["topology.wan.latency=7ms"]).points()[0].topology.wan[0].conditions.latency_ns
        == 7 * 10**6
    )
    near = load_experiment(path, ["topology=nets/near.yaml"])
    assert near.points()[0].topology.wan[0].conditions.latency_ns == 10**6
    both = load_experiment(path, ["sweep.topology=[nets/two.yaml, nets/near.yaml]"])
    assert [point.topology.wan[0].conditions.latency_ns // 10**6 for point in both.points()] == [40, 1]


def test_a_profile_gives_the_links(tmp_path: Path) -> None:
    topology = {"datacenters": [{"name": "eastus", "hosts": 1}, {"name": "westus", "hosts": 1}], "profile": "azure"}
    (point,) = parsed(small(topology=topology)).points()
    assert 20_000_000 < point.topology.conditions("eastus", "westus").latency_ns < 60_000_000
    own = {
        "title": "mine",
        "source": [{"figures": "latency", "origin": "made up"}],
        "default": {"latency": "3ms", "rate": "1Gbit"},
    }
    written(tmp_path, own, "own.yaml")
    path = written(tmp_path, small(topology={**topology, "profile": "own.yaml"}))
    before = load_experiment(path)
    assert before.points()[0].topology.wan[0].conditions.latency_ns == 3_000_000
    written(tmp_path, {**own, "default": {"latency": "4ms", "rate": "1Gbit"}}, "own.yaml")
    assert load_experiment(path).config_hash != before.config_hash


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"varients": []}, "varients: unknown field, did you mean 'variants'?"),
        (
            {"topology": {**SMALL["topology"], "wan": {"latency": "40Mbit"}}},
            "topology.wan.latency: '40Mbit' has the unit 'Mbit', not one of a duration (",
        ),
        (
            {"topology": {**SMALL["topology"], "wan": {"latency": 40}}},
            "topology.wan.latency: 40 has no unit: write a duration like 40ms, 50us or 2s",
        ),
        (
            {"topology": {**SMALL["topology"], "wan": {"latency": "-40ms"}}},
            "topology.wan.latency: '-40ms' is negative: a duration is zero or more",
        ),
        (
            {"topology": {**SMALL["topology"], "links": [{"between": ["east", "nort"]}]}},
            "topology.links.0.between: no datacenter 'nort', there are east, west",
        ),
        (
            {"training": {"stages": 5}},
            "training.stages: 5 stages need 5 GPUs, one each, and the hosts have 4 (east 2, west 2): add hosts or use",
        ),
        (
            {"compute": {"forward": ["1ms"]}},
            "compute.forward: a list of 1 for 4 stages: give one for each, or a single value",
        ),
        (
            {"compute": {"forward": "1ms"}},
            "compute.activation: no model gives the size that a microbatch sends over a stage boundary: write it, like",
        ),
        (
            {"compute": {"forward": "1ms", "activation": "1MiB"}, "training": {"stages": 2, "pipelines": 2}},
            "compute.gradient: no model gives the size that a stage's replicas all-reduce: write it, like 500MB, or",
        ),
        (
            {"compute": {"profile": "a100"}, "model": None},
            "model: a compute profile needs one: give a model, like gpt-a",
        ),
        (
            {"compute": {"activation": ["1MiB"] * 4}},
            "compute.activation: a list of 4 for 3 boundaries between stages: give one for each, or a single value",
        ),
        (
            {"training": {"iterations": 2, "warmup": 2}},
            "training.iterations: 2, of which 2 warm up, leaves none to measure: give more iterations than warmup",
        ),
        (
            two_jobs(jobs=[{**two_jobs()["jobs"][0], "iterations": 1}, two_jobs()["jobs"][1]]),
            "jobs.0.iterations: 1, of which 1 warm up, leaves none to measure: give more iterations than warmup",
        ),
        (
            {"training": {"evaluate_every": 5}},
            "training.evaluate_every: ",
        ),
        (
            {"topology": {"datacenters": SMALL["topology"]["datacenters"]}},
            "topology.wan: no network between the datacenters is given: give wan, like {latency: 40ms, rate: 10G",
        ),
        (
            {"topology": {"datacenters": SMALL["topology"]["datacenters"][:1], "wan": {}}},
            "topology.wan: one datacenter has no WAN: add a datacenter, or leave wan out",
        ),
        (
            {"topology": {"datacenters": SMALL["topology"]["datacenters"], "profile": "azur"}},
            "topology.profile: no network preset is called 'azur', did you mean 'azure'?",
        ),
        (
            {"topology": {**SMALL["topology"], "profile": "paper-10ms"}},
            "topology.profile: a network preset replaces wan: leave profile or wan out",
        ),
        (
            {"variants": [{"name": "a", "schedule": "gpipe", "placement": ["east"]}]},
            "variants.0.placement: a list of 1 for 4 stages, name one datacenter for each stage",
        ),
        ({"topology": "nowhere.yaml"}, "topology: "),
        (
            {"topology": {"datacenters": [{"name": "east", "hosts": 250, "gpus_per_host": 5}]}},
            "training.stages: the hosts have 1250 GPUs, more than the 1024 stages there can be: give how many to use",
        ),
        (
            {"sweep": {"topology.wan.latancy": ["1ms"]}},
            "sweep: topology.wan.latancy: no field 'latancy' in topology.wan",
        ),
        (
            {"sweep": {"topology.wan.latency": ["1ms", "-1ms"]}},
            "sweep: at topology.wan.latency=-1ms: topology.wan.latency: '-1ms' is negative",
        ),
        (
            {"sweep": {"training.stages": [4, 5]}},
            "sweep: at training.stages=5: training.stages: 5 stages need 5 GPUs",
        ),
        (
            {"sweep": {"topology.links.0.latency": ["1ms"]}},
            "sweep: topology.links.0.latency: topology.links has no entries here, there is no 0",
        ),
    ],
)
def test_bad_input_is_refused_with_file_field_and_remedy(tmp_path: Path, change: dict[str, Any], text: str) -> None:
    path = written(tmp_path, small(**change))
    assert refusal(path).startswith(f"{path}: {text}")


def test_an_unreadable_file_is_refused(tmp_path: Path) -> None:
    missing = tmp_path / "missing.yaml"
    assert refusal(missing) == (
        f"{missing}: cannot be read (No such file or directory): give the path of a readable YAML file"
    )


def test_an_alias_bomb_is_refused(tmp_path: Path) -> None:
    lines = ["topology: &a0 {datacenters: []}"]
    lines += [f"x{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]" for level in range(1, 10)]
    path = written(tmp_path, "\n".join(lines))
    assert refusal(path) == f"{path}: line 6: more than 100000 values once its aliases are expanded, use fewer"


def test_a_fault_in_the_topologys_own_file_names_that_file(tmp_path: Path) -> None:
    topology = written(tmp_path, {"datacenters": [{"name": "east", "host": 1}]}, "net.yaml")
    assert refusal(written(tmp_path, small(topology="net.yaml"))).startswith(
        f"{topology}: datacenters.0.host: unknown field, did you mean 'hosts'?"
    )


def test_a_refusal_says_which_overrides_were_given(tmp_path: Path) -> None:
    path = written(tmp_path, SMALL)
    text = refusal(path, "repeats=2", "topology.wan.latency=-1ms")
    assert text.startswith(
        f"{path} --set repeats=2 --set topology.wan.latency=-1ms: topology.wan.latency: '-1ms' is ne"
    )
    assert refusal(path, "topology.wan.latancy=1ms").startswith("--set topology.wan.latancy=1ms: no field 'latancy'")


def test_a_file_whose_name_is_no_name_still_runs(tmp_path: Path) -> None:
    assert load_experiment(written(tmp_path, SMALL, "a\nb.yaml")).name == "experiment"


def test_a_network_that_nothing_can_train_over_is_read_where_only_the_network_is_asked_for(tmp_path: Path) -> None:
    path = written(tmp_path, small(topology={**SMALL["topology"], "wan": {"latency": "1ms", "loss": "100%"}}))
    assert "topology.wan.loss: 100%" in refusal(path)
    (point,) = load_experiment(path, trains=False).points()
    assert point.topology.conditions("east", "west").impairments.loss == 1.0
    assert point.background == ()


def test_at_least_one_iteration_is_measured_and_a_check_is_of_the_warm_up() -> None:
    def document(**training: int) -> dict[str, Any]:
        compute = {"kind": "torch", "check_iteration": 1}
        return small(training={"stages": 1, **training}, compute=compute, model="gpt-tiny")

    parsed(document(iterations=4, warmup=3))
    with pytest.raises(InputError, match=r"^exp\.yaml: training\.iterations: 3, of which 3 warm up"):
        parsed(document(iterations=3, warmup=3))
    # On an H200 the first measured iteration, which came after the checked one, was 1.3 s longer than the others.
    with pytest.raises(
        InputError, match=r"^exp\.yaml: compute\.check_iteration: 1, .* the last .*: give a training.warmup of 3"
    ):
        parsed(document(iterations=4, warmup=2))
    with pytest.raises(InputError, match=r"^exp\.yaml: compute\.check_iteration: 1, counted from 0, is measured"):
        parsed(document(iterations=4, warmup=0))


def test_what_computes_for_real_is_not_dilated() -> None:
    torch = {"compute": {"kind": "torch"}, "model": "gpt-tiny", "training": {"stages": 1}}
    program = {"compute": {}, "variants": [{"name": "p", "program": {"command": ["true"]}}]}
    for changes, name in ((torch, "torch"), (program, "a program")):
        with pytest.raises(InputError, match=f"dilation: what {name} computes cannot be dilated: give 1 or auto"):
            parsed(small(**changes, dilation=2))
        for dilation in (1, "auto"):
            assert parsed(small(**changes, dilation=dilation)).points()[0].real_time
    assert not parsed(small(dilation=2)).points()[0].real_time


def test_trials_interleave_variants_repeat_by_repeat_and_sweep_point_by_sweep_point() -> None:
    variants = [{"name": name, "schedule": "gpipe"} for name in "ab"]
    experiment = parsed(small(variants=variants, repeats=2, sweep={"topology.wan.latency": ["1ms", "2ms"]}))
    assert [(trial.point, trial.variant, trial.repeat) for trial in experiment.trials()] == [
        (point, variant, repeat) for point in (0, 1) for repeat in (0, 1) for variant in "ab"
    ]
    first = experiment.points()[0]
    assert (first.variant("b").name, first.iterations(first.variant("b"))) == ("b", 3)


def test_trials_and_the_text_of_traces_are_limited_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    variants = [{"name": name, "schedule": "gpipe"} for name in "ab"]
    document = small(variants=variants, repeats=3, sweep={"topology.wan.latency": ["1ms", "2ms"]})
    monkeypatch.setattr("wanbed.runner.resolve.experiment.MAX_TRIALS", 12)
    parsed(document)
    monkeypatch.setattr("wanbed.runner.resolve.experiment.MAX_TRIALS", 11)
    with pytest.raises(InputError, match="repeats: 12 trials at all points of all variants, more than the 11"):
        parsed(document)
    text = "t_s,rate\n5,50Mbit\n"
    (tmp_path / "drift.csv").write_text(text, encoding="utf-8")
    topology = {**SMALL["topology"], "wan": {"latency": "1ms", "rate": "1Gbit", "trace": "drift.csv"}}
    path = written(tmp_path, small(topology=topology))
    monkeypatch.setattr("wanbed.runner.resolve.experiment.MAX_TRACE_CHARACTERS", len(text))
    assert load_experiment(path).spec.traces == {"drift.csv": text}
    monkeypatch.setattr("wanbed.runner.resolve.experiment.MAX_TRACE_CHARACTERS", len(text) - 1)
    assert "topology: the traces of all links and sweep points together have more than" in refusal(path)


def test_the_largest_demand_of_the_variants_decides() -> None:
    variants = [
        {"name": "one", "schedule": "gpipe", "placement": ["east", "east"]},
        {"name": "both", "schedule": "gpipe", "placement": ["east", "west"]},
    ]
    (point,) = parsed(small(variants=variants, training={"stages": 2})).points()
    assert [demand.wan_bps for demand in point.demands] == [0, 2 * 10**9]
    assert point.demand == point.demands[1]

import json
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.support.results.runs import EXPERIMENT, WAN, flat, made
from wanbed import results
from wanbed.results.comparison.differences import (
    ABSENT,
    Difference,
    ManifestDifference,
    _over_links,
    command_text,
    course_text,
    differences,
    differing,
    flattened,
    incomparable,
    is_below,
    is_command,
    manifest_differences,
    trace_text,
    under_test,
    value_text,
)
from wanbed.results.comparison.pairing import pair_runs
from wanbed.results.reading.run import Run

DOCUMENT = {
    "a": {"b": 1},
    "variants": [{"name": "gpipe", "schedule": "x"}],
    "links": [[1, {"c": None}], []],
    "e": [2, 3],
}


def test_paths_are_those_of_overrides() -> None:
    assert dict(flattened(DOCUMENT)) == {
        "a.b": 1,
        "variants.0.name": "gpipe",
        "variants.0.schedule": "x",
        "links.0.0": 1,
        "links.0.1.c": None,
        "links.1": [],
        "e.0": 2,
        "e.1": 3,
    }


def test_entries_of_a_list_can_go_by_their_names() -> None:
    assert dict(flattened(DOCUMENT, named=True)) == {
        "a.b": 1,
        "variants.gpipe.name": "gpipe",
        "variants.gpipe.schedule": "x",
        "links.0.0": 1,
        "links.0.1.c": None,
        "links.1": [],
        "e": [2, 3],
    }


@pytest.mark.parametrize("named", [False, True])
def test_a_command_is_one_value_as_one_would_type_it(named: bool) -> None:
    program = {"program": {"command": ["python", "train.py", "--note", "two words"], "iterations": 20}}
    assert dict(flattened(program, named=named)) == {
        "program.command": "python train.py --note 'two words'",
        "program.iterations": 20,
    }


def test_a_course_and_a_trace_are_one_line_each() -> None:
    course = {"source": "drift.csv", "changes": 7, "sha256": "0123456789abcdef", "period_ns": 2_500_000_000}
    assert course_text(course) == "drift.csv (7 changes, begins anew every 2.5 s, SHA-256 0123456789ab)"
    assert course_text({**course, "synthetic": True, "period_ns": None}) == (
        "drift.csv (7 changes, synthetic, SHA-256 0123456789ab)"
    )
    text = "t_s,rate\n0,1Gbit\n"
    assert trace_text(text) == f"2 lines, SHA-256 {sha256(text.encode()).hexdigest()[:12]}"
    found = dict(flattened({"wan": [{"course": course}], "traces": {"a.csv": text}, "course": {}}))
    assert found == {"wan.0.course": course_text(course), "traces.a.csv": trace_text(text), "course": course_text({})}


def test_a_command_is_a_list_of_words_that_is_not_empty_under_its_name() -> None:
    assert is_command("command", ["a"])
    assert is_command("setup", ("a", "b"))
    assert not any((is_command("command", []), is_command("command", ["a", 1]), is_command("words", ["a"])))
    assert not is_command("command", "a")
    assert command_text(["a b", "c"]) == "'a b' c"


TIMES = {(latency, "atlas"): flat(1.0, repeats=1) for latency in ("10ms", "40ms")}


def found(a: Run, b: Run) -> list[Difference]:
    return differences(a, b, pair_runs(a, b).pairs)


def fields(tmp_path: Path, **options: Any) -> dict[str, tuple[str, str]]:
    a, b = made(tmp_path, TIMES), made(tmp_path, TIMES, **options)
    return {each.field: (each.a, each.b) for each in found(a, b)}


def test_the_same_experiment_run_twice_differs_in_nothing(tmp_path: Path) -> None:
    assert fields(tmp_path) == {}


@pytest.mark.parametrize(
    ("field", "value"), [("engine", "cluster"), ("clock", "virtual"), ("dilation", 2.0), ("seed", 1)]
)
def test_engine_clock_dilation_and_seed_have_to_be_the_same(tmp_path: Path, field: str, value: Any) -> None:
    assert fields(tmp_path, **{field: value}).keys() == {field}


def test_the_substrate_has_to_be_the_same_and_its_kernel_need_not(tmp_path: Path) -> None:
    assert fields(tmp_path, substrate={"name": "guest", "kernel": "6.1"}) == {"substrate": ("kernel", "guest")}
    assert fields(tmp_path, substrate={"name": "kernel", "kernel": "6.12"}) == {}


@pytest.mark.parametrize(
    ("section", "value", "field"),
    [
        ("model", "gpt-b", "model"),
        ("compute", {"kind": "replay", "profile": "cpu"}, "compute.profile"),
        ("training", {**EXPERIMENT["training"], "microbatches": 8}, "training.microbatches"),
        ("training", {**EXPERIMENT["training"], "warmup": 2}, "training.warmup"),
        ("prefill", {"rate": "4/s"}, "prefill.rate"),
        (
            "topology",
            {**EXPERIMENT["topology"], "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 2}]},
            "topology.datacenters.1.hosts",
        ),
    ],
)
def test_every_section_of_the_experiment_is_compared(tmp_path: Path, section: str, value: Any, field: str) -> None:
    assert fields(tmp_path, experiment={section: value}).keys() == {field}


def test_a_field_that_an_older_version_did_not_write_is_the_same_as_null(tmp_path: Path) -> None:
    older = {name: value for name, value in EXPERIMENT["training"].items() if name != "text"}
    assert fields(tmp_path, experiment={"training": older}) == {}


def test_how_often_it_was_repeated_and_what_it_is_called_do_not_matter(tmp_path: Path) -> None:
    assert fields(tmp_path, experiment={"name": "other", "repeats": 9}) == {}


def test_a_network_counts_as_resolved_and_not_as_written(tmp_path: Path) -> None:
    by_profile = {"datacenters": EXPERIMENT["topology"]["datacenters"], "profile": "mine.yaml"}
    assert fields(tmp_path, experiment={"topology": by_profile}) == {}


def test_what_a_sweep_replaces_counts_sweep_point_by_sweep_point(tmp_path: Path) -> None:
    a, b = made(tmp_path, TIMES), made(tmp_path, TIMES, latency_ns=lambda text: 41_000_000)
    assert found(a, b) == [
        Difference("topology.wan.latency", "10.0 ms", "41.0 ms", "WAN latency 10ms, east-west"),
        Difference("topology.wan.latency", "40.0 ms", "41.0 ms", "WAN latency 40ms, east-west"),
    ]


def test_the_ends_of_a_link_are_told_apart_from_its_field_whatever_they_are_called() -> None:
    written = Difference("topology.wan.latency.eu.west-1-us.east", "10.0 ms", "41.0 ms", "")
    assert _over_links([written]) == [Difference("topology.wan.latency", "10.0 ms", "41.0 ms", "eu.west-1-us.east")]


def test_a_compute_profile_with_other_figures_is_refused_despite_its_name(tmp_path: Path) -> None:
    assert fields(tmp_path, work_ns=1001) == {"compute.work.forward_ns": ("[1000, 1000]", "[1001, 1001]")}


def test_variants_that_divide_the_training_differently_may_have_other_stage_costs(tmp_path: Path) -> None:
    variants = [{"name": "atlas", "schedule": "by atlas", "training": {"stages": 1, "pipelines": 2}}]
    assert fields(tmp_path, work_ns=1001, experiment={"variants": variants}) == {}


def test_failed_calibration_is_reported_with_its_links(tmp_path: Path) -> None:
    failed = fields(tmp_path, within_tolerance=False)
    assert failed == {"calibration": ("within tolerance", "outside tolerance: east to west")}


def test_links_without_calibration_are_refused(tmp_path: Path) -> None:
    a, b = made(tmp_path, TIMES), made(tmp_path, TIMES)
    for file in (b.path / "calibration").iterdir():
        file.unlink()
    b = type(b)(**{**vars(b), "calibration": b.calibration[:0]})
    (difference,) = found(a, b)
    assert (difference.field, difference.b) == ("calibration", "not measured")
    assert difference.where == "WAN latency 10ms; WAN latency 40ms"


def test_a_simulation_has_nothing_to_calibrate(tmp_path: Path) -> None:
    a, b = (made(tmp_path, TIMES, engine="simulate", within_tolerance=within) for within in (True, False))
    assert found(a, b) == []


def test_an_incomplete_run_is_reported_with_the_remedy(tmp_path: Path) -> None:
    (difference,) = found(made(tmp_path, TIMES), made(tmp_path, TIMES, finished=False))
    assert (difference.field, difference.a, difference.b) == ("complete", "yes", "no, 2 trials finished")
    assert "--resume" in difference.remedy


def test_differences_between_paired_variants_are_never_refused(tmp_path: Path) -> None:
    variants = [{"name": "atlas", "schedule": "by atlas", "transport": {"connections": 8}}]
    a, b = made(tmp_path, TIMES), made(tmp_path, TIMES, experiment={"variants": variants})
    assert found(a, b) == []
    assert under_test(a, b, pair_runs(a, b).pairs) == [
        Difference("transport.connections", "not set", "8", "atlas"),
    ]


def test_a_field_is_below_another_by_whole_steps() -> None:
    assert is_below("topology.wan.rate", "topology.wan")
    assert is_below("topology.wan", "topology.wan")
    assert not is_below("topology.wanted", "topology.wan")


def test_a_link_whose_loss_a_simulation_does_not_model_is_another_than_the_emulated_one(tmp_path: Path) -> None:
    link = {**WAN, "between": ["west", "east"], "latency_ns": 10**7, "loss": 0.01, "jitter_ns": 10**6}
    points = [{"index": 0, "sweep_point": {"topology.wan.latency": "10ms"}, "wan": [link]}]
    asked = [
        {"field": "topology.wan.loss", "asked": "1%", "links": [["west", "east"]], "variants": []},
        {"field": "topology.wan.jitter", "asked": "1ms", "links": [["west", "east"]], "variants": []},
    ]
    times = {("10ms", "atlas"): flat(1.0)}
    emulated = made(tmp_path, times, sweep_points=points)
    simulated = made(tmp_path, times, engine="simulate", sweep_points=[{**points[0], "not_modelled": asked}])
    text = {
        each.field: (each.a.replace("\u00a0", " "), each.b.replace("\u00a0", " "))
        for each in found(emulated, simulated)
    }
    assert text == {
        "engine": ("emulate", "simulate"),
        "clock": ("real", "not set"),
        "topology.wan.loss": ("1.00 %", "1.00 %, not modelled"),
        "topology.wan.jitter": ("1.00 ms", "1.00 ms, not modelled"),
    }
    assert found(simulated, made(tmp_path, times, engine="simulate", sweep_points=points)) == [], (
        "written by an older version"
    )


def test_directions_of_a_link_are_compared_one_by_one(tmp_path: Path) -> None:
    both = {"between": ["east", "west"], "latency_ns": 10_000_000, "loss": 0.0}
    apart = [
        {"from": "east", "to": "west", "latency_ns": 10_000_000, "loss": 0.0},
        {"from": "west", "to": "east", "latency_ns": 30_000_000, "loss": 0.0},
    ]
    runs = []
    for wan in ([both], apart):
        points = [{"index": 0, "sweep_point": {"topology.wan.latency": "10ms"}, "wan": wan}]
        runs.append(made(tmp_path, {("10ms", "atlas"): flat(1.0)}, sweep_points=points))
    (difference,) = found(*runs)
    texts = (difference.a.replace("\u00a0", " "), difference.b.replace("\u00a0", " "))
    assert difference.field == "topology.wan.latency"
    assert texts == ("10.0 ms", "10.0 ms east to west, 30.0 ms west to east")


def test_modelled_tcp_is_refused_beside_a_kernels_with_the_remedy_and_not_beside_its_like(tmp_path: Path) -> None:
    relay = {"name": "relay", "tcp": "modelled"}
    netem, one, other = (
        made(tmp_path, TIMES, **options) for options in ({}, {"substrate": relay}, {"substrate": relay})
    )
    (difference,) = found(netem, one)
    assert (difference.field, difference.a, difference.b) == ("substrate", "kernel", "relay")
    assert "TCP is modelled in one of the two" in difference.remedy
    assert found(one, other) == []


def test_up_to_three_links_outside_tolerance_are_named_and_the_others_counted(tmp_path: Path) -> None:
    a, b = made(tmp_path, TIMES), made(tmp_path, TIMES)
    (row,) = b.calibration[b.calibration["sweep_point"] == 0].to_dict("records")
    for count, more in ((3, ""), (4, " and 1 more"), (9, " and 6 more")):
        rows = [{**row, "source": f"dc{number}", "within_tolerance": False} for number in range(count)]
        rows.append({**row, "sweep_point": 1, "within_tolerance": True})
        failed = replace(b, calibration=pd.DataFrame(rows))
        (difference,) = found(a, failed)
        listed = ", ".join(f"dc{number} to west" for number in range(3))
        assert (difference.b, difference.where) == (f"outside tolerance: {listed}{more}", "WAN latency 10ms")
        (other_way,) = found(failed, a)
        assert (other_way.a, other_way.b) == (difference.b, "within tolerance")


def test_the_number_of_finished_trials_and_how_to_go_on_are_said_of_the_run_that_is_not_complete(
    tmp_path: Path,
) -> None:
    whole, part = made(tmp_path, TIMES), made(tmp_path, TIMES, finished=False)
    (difference,) = found(part, whole)
    assert (difference.a, difference.b) == ("no, 2 trials finished", "yes")
    assert difference.remedy == "continue it with wanbed run FILE --resume"
    simulated = [replace(run, manifest={**run.manifest, "engine": "simulate"}) for run in (whole, part)]
    (difference,) = found(*simulated)
    assert difference.remedy == "continue it with wanbed simulate FILE --resume"


def test_figures_of_links_are_told_in_their_units(tmp_path: Path) -> None:
    run = made(tmp_path, {("10ms", "atlas"): flat(1.0)})

    def differing_links(**changes: Any) -> dict[str, tuple[str, str]]:
        link = {**WAN, "between": ["east", "west"], "latency_ns": 10**7}
        runs = []
        for own in (link, {**link, **changes}):
            points = [{"index": 0, "sweep_point": {"topology.wan.latency": "10ms"}, "wan": [own]}]
            runs.append(replace(run, path=Path(str(len(runs))), manifest={**run.manifest, "sweep_points": points}))
        spaces = [(each.field, each.a.replace("\u00a0", " "), each.b.replace("\u00a0", " ")) for each in found(*runs)]
        return {field: (a, b) for field, a, b in spaces}

    assert differing_links(rate_bps=None) == {"topology.wan.rate": ("1.00 Gbit/s", "unlimited")}
    assert differing_links(node_pair_rate_bps=2 * 10**8) == {
        "topology.wan.node_pair_rate": ("100 Mbit/s", "200 Mbit/s")
    }
    assert differing_links(loss=0.5) == {"topology.wan.loss": ("0 %", "50.0 %")}


def test_two_pairs_of_a_sweep_point_tell_of_its_links_once_and_of_each_variants_work(tmp_path: Path) -> None:
    times = {("10ms", "atlas"): flat(1.0), ("10ms", "varuna"): flat(1.0)}
    a = made(tmp_path, times)
    b = made(tmp_path, times, latency_ns=lambda text: 41_000_000, work_ns=1001)
    assert [(each.field, each.where) for each in found(a, b)] == [
        ("topology.wan.latency", "WAN latency 10ms, east-west"),
        ("compute.work.forward_ns", "WAN latency 10ms, atlas; WAN latency 10ms, varuna"),
    ]


def test_a_value_is_text_as_it_is_or_json_and_nothing_is_not_set() -> None:
    assert [value_text(value) for value in ("a b", 3, [1, "é"], None, True)] == [
        "a b",
        "3",
        '[1, "é"]',
        "not set",
        "true",
    ]
    assert differing({"a": 0, "b": "", "c": [], "d": 1}, {"a": None, "d": 2, "e": {}}) == [Difference("d", "1", "2")]


BuildRun = Callable[..., Path]


def test_only_fields_that_differ_are_reported_and_what_follows_from_others_is_marked() -> None:
    first = {"seed": 0, "clock": "real", "created": "today", "qdiscs": {"0": 1}}
    second = {"seed": 1, "clock": "real", "created": "tomorrow", "dilation": 2.0, "qdiscs": {"0": 2}}
    assert manifest_differences([first, second]) == [
        ManifestDifference("seed", ("0", "1"), derived=False),
        ManifestDifference("created", ('"today"', '"tomorrow"'), derived=True),
        ManifestDifference("qdiscs.0", ("1", "2"), derived=True),
        ManifestDifference("dilation", (ABSENT, "2.0"), derived=False),
    ]


def test_the_same_manifests_differ_in_nothing() -> None:
    assert manifest_differences([{"seed": 0}, {"seed": 0}, {"seed": 0}]) == []


def test_another_topology_is_not_comparable(build_run: BuildRun) -> None:
    path, other = build_run(name="one"), build_run(name="two")
    manifest = json.loads((other / "manifest.json").read_text())

    def differing(**wan: int) -> list[str]:
        for point in manifest["sweep_points"]:
            for link in point["wan"]:
                link.update(wan)
        (other / "manifest.json").write_text(json.dumps(manifest))
        return incomparable([results.load(path), results.load(other)])

    assert differing() == []
    assert differing(node_pair_rate_bps=10**9) == ["topology"]

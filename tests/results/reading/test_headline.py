"""Tokens of variants that learn otherwise are said not to be worth the same where they stand beside others."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import wanbed
from tests.support.results.runs import WAN, flat, made, write_run
from wanbed import results
from wanbed.results.comparison.comparison import check, compare
from wanbed.results.comparison.markdown import markdown
from wanbed.results.metrics.bootstrap import median_interval
from wanbed.results.reading.headline import (
    Disturbed,
    TimeBound,
    by_point,
    differences,
    encoded_text,
    headline,
    variant_fields,
    worth_note,
    worth_text,
)
from wanbed.results.reading.run import Run, load_run
from wanbed.results.reading.stored_trial import point_text
from wanbed.results.report.charts.colours import Styles
from wanbed.results.report.charts.iteration_time import iteration_time_chart
from wanbed.results.report.report import write_report
from wanbed.results.report.reported_runs import ReportedRuns
from wanbed.results.report.text_formats import table_text

BuildRun = Callable[..., Path]


def test_of_a_link_that_changes_the_worst_iteration_and_what_was_lost_are_known(tmp_path: Path) -> None:
    times = {("10ms", "x"): [[1.0, 1.0, 1.0, 5.0], [1.0, 1.0, 1.0, 3.0]]}
    assert headline(made(tmp_path, times))[0].times.disturbed is None, "nothing was to change"
    course = {"source": "drift.csv", "synthetic": False, "period_ns": None, "changes": 3, "sha256": "ab"}
    link = {"between": ["east", "west"], "latency_ns": 10_000_000, **WAN, "course": course}
    works = {"x": {"work": {"forward_ns": [1000, 1000]}}}
    point = {"index": 0, "sweep_point": {"topology.wan.latency": "10ms"}, "wan": [link], "variants": works}
    (row,) = headline(made(tmp_path / "changing", times, sweep_points=[point]))
    # Fourteen seconds in all, of which eight median iterations take eight.
    assert row.times.median_s == 1.75
    assert row.times.disturbed == Disturbed(5.0, pytest.approx(6 / 14))
    assert row.times.disturbed.text.replace("\N{NO-BREAK SPACE}", " ") == "worst 5.00 s, 42.9 % lost"


def test_there_is_a_row_for_each_variant_in_each_sweep_point(build_run: BuildRun) -> None:
    rows = headline(results.load(build_run(repeats=2)))
    assert [(row.point, row.variant, row.repeats) for row in rows] == [
        (point, variant, 2) for point in (0, 1) for variant in ("one connection", "many connections")
    ]


def test_repeats_give_the_median_and_the_range(build_run: BuildRun) -> None:
    run = results.load(build_run(repeats=3, latencies=("10ms",)))
    times_s = sorted(run.summary["iteration_time_s"][:3])
    row = headline(run)[0]
    assert [row.times.fastest_s, row.times.median_s, row.times.slowest_s] == times_s
    assert times_s[0] < times_s[2]


def test_the_iteration_is_set_against_the_lower_bound_of_its_trials(tmp_path: Path) -> None:
    run = made(tmp_path, {("10ms", "x"): flat(1.0)}, bound={"time_ns": 800_000_000, "part": "gpu of stage 2"})
    (row,) = headline(run)
    assert (row.over_bound, row.bound) == (1.25, TimeBound(0.8, "gpu of stage 2"))
    assert (
        run.summary[["bound_s", "bound_part", "over_bound"]].to_numpy().tolist() == [[0.8, "gpu of stage 2", 1.25]] * 3
    )


def test_a_time_below_its_bound_is_shown_as_it_is(tmp_path: Path) -> None:
    (row,) = headline(
        made(tmp_path, {("10ms", "x"): flat(1.0)}, bound={"time_ns": 1_010_000_000, "part": "gpu of stage 0"})
    )
    assert row.over_bound == pytest.approx(1 / 1.01)


def test_a_trial_of_which_no_bound_is_known_has_none(tmp_path: Path) -> None:
    (row,) = headline(made(tmp_path, {("10ms", "x"): flat(1.0)}))
    assert (row.over_bound, row.bound) == (None, None)


def test_the_speed_up_is_against_the_first_variant_in_the_same_sweep_point(build_run: BuildRun) -> None:
    rows = headline(results.load(build_run()))
    near_one, near_many, far_one, far_many = rows
    assert near_one.speed_up == far_one.speed_up == 1.0
    assert near_many.speed_up == pytest.approx(1.0)
    assert far_one.times.median_s is not None
    assert far_many.times.median_s is not None
    assert far_many.speed_up == far_one.times.median_s / far_many.times.median_s


def test_without_the_first_variant_in_a_sweep_point_there_is_no_speed_up(build_run: BuildRun) -> None:
    manifest = {"variants": [{"name": "never ran"}, {"name": "one connection"}]}
    rows = headline(results.load(build_run(manifest=manifest, finished_trials=1)))
    assert [row.speed_up for row in rows] == [None]


def test_a_sweep_point_is_named_by_its_swept_values() -> None:
    assert point_text({"topology.wan.latency": "10ms", "training.microbatches": "4"}) == (
        "WAN latency 10ms, training.microbatches 4"
    )
    assert point_text({}) == ""


def test_an_iteration_time_has_an_interval_that_holds_it(build_run: BuildRun) -> None:
    run = results.load(build_run(repeats=3))
    for row in headline(run):
        own = run.summary[(run.summary["variant"] == row.variant) & (run.summary["sweep_point"] == row.point)]
        assert row.times.interval_s == median_interval([[time_s] for time_s in own["iteration_time_s"]])
        assert row.times.interval_s is not None
        assert row.times.median_s is not None
        assert row.times.interval_s[0] <= row.times.median_s <= row.times.interval_s[1]
        assert row.times.iterations == 6


def test_a_simulation_has_no_interval(build_run: BuildRun) -> None:
    rows = headline(results.load(build_run(manifest={"engine": "simulate"})))
    assert [row.times.interval_s for row in rows] == [None] * 4


def test_a_simulation_that_draws_has_the_interval_of_its_repeats(build_run: BuildRun) -> None:
    rows = headline(results.load(build_run(manifest={"engine": "simulate"}, repeats=3, drawn=True)))
    for row in rows:
        assert row.times.interval_s is not None
        assert row.times.median_s is not None
        assert row.times.interval_s[0] <= row.times.median_s <= row.times.interval_s[1]


def test_a_simulation_that_draws_once_says_why_it_has_no_interval(build_run: BuildRun) -> None:
    rows = headline(results.load(build_run(manifest={"engine": "simulate"}, drawn=True)))
    assert {row.times.without_interval for row in rows} == {"1 repeat, no interval"}


@pytest.mark.parametrize(("repeats", "words"), [(1, "1 repeat, no interval"), (2, "2 repeats, no interval")])
def test_below_three_repeats_there_is_no_interval_and_the_row_says_why(
    build_run: BuildRun, repeats: int, words: str
) -> None:
    rows = headline(results.load(build_run(repeats=repeats, latencies=("10ms",))))
    assert [row.times.interval_s for row in rows] == [None, None]
    assert [row.times.without_interval for row in rows] == [words, words]
    assert [row.times.range_s for row in rows] == [
        (row.times.fastest_s, row.times.slowest_s) if repeats > 1 else None for row in rows
    ]


def test_a_row_has_the_number_of_saturated_repeats(build_run: BuildRun) -> None:
    run = results.load(build_run(repeats=2, latencies=("10ms",), variants=("x",)))
    loads: list[dict[str, float | None]] = [{"saturated": 0.02, "network": 0.7}, {"saturated": 0.05, "network": None}]
    trials = (
        replace(trial, facts={**trial.facts, "machine_load": load})
        for trial, load in zip(run.trials, loads, strict=True)
    )
    (row,) = headline(replace(run, trials=tuple(trials)))
    assert row.standing.saturation.mark.replace("\u00a0", " ") == "network core 70.0 % in 1 of 2 repeats"


def test_rows_of_several_runs_stand_side_by_side_by_swept_values(build_run: BuildRun) -> None:
    rows = [row for label in ("old", "new") for row in headline(results.load(build_run(name=label)), label)]
    assert [(where, [(row.variant, row.run) for row in own]) for where, own in by_point(rows)] == [
        (f"WAN latency {latency}", [(v, r) for v in ("one connection", "many connections") for r in ("old", "new")])
        for latency in ("10ms", "40ms")
    ]


GPIPE = {"name": "gpipe", "schedule": "gpipe", "transport": {"connections": 1, "sharing": "none"}, "placement": None}

ATLAS = {
    "name": "atlas",
    "schedule": "atlas",
    "transport": {"connections": "auto", "sharing": "temporal"},
    "placement": ["east", "west"],
}


def manifest(*variants: object) -> dict[str, object]:
    return {"experiment": {"variants": list(variants)}}


def test_every_field_that_the_first_variant_has_otherwise_is_named() -> None:
    assert differences(manifest(GPIPE, ATLAS), "gpipe", "atlas") == (
        "schedule atlas against gpipe",
        "connections auto against 1",
        "sharing temporal against none",
        "placement [east, west] against default",
    )
    assert differences(manifest(GPIPE, ATLAS), "gpipe", "gpipe") == ()


def test_a_manifest_without_the_experiment_or_one_of_the_two_names_nothing_or_what_it_has() -> None:
    assert differences({"variants": [GPIPE, ATLAS]}, "gpipe", "atlas")[0] == "schedule atlas against gpipe"
    assert differences(manifest(GPIPE), "gpipe", "atlas") == ()
    assert differences({}, "gpipe", "atlas") == ()


def test_of_many_differences_the_first_are_named_and_the_others_counted() -> None:
    one, other = ({"name": name, **{f"field {n}": name for n in range(8)}} for name in ("a", "b"))
    assert differences(manifest(one, other), "a", "b")[-2:] == ("field 4 b against a", "3 more")


def test_a_long_value_is_cut() -> None:
    one, other = ({"name": name, "text": name * 50} for name in "ab")
    assert differences(manifest(one, other), "a", "b") == (f"text {'b' * 40}... against {'a' * 40}...",)


def test_fields_that_all_variants_have_alike_are_no_columns() -> None:
    fields = variant_fields(manifest(GPIPE, {**ATLAS, "placement": None}), ("gpipe", "atlas", "no such variant"))
    assert fields.columns == ("schedule", "connections", "sharing")
    assert fields.rows == {"gpipe": ("gpipe", "1", "none"), "atlas": ("atlas", "auto", "temporal")}


def test_what_a_variants_training_leaves_out_is_the_experiments() -> None:
    one = {"name": "a", "training": {"stages": None, "pipelines": None}}
    other = {"name": "b", "training": {"stages": 1, "pipelines": 2}}
    document = {"training": {"stages": 4, "pipelines": 2}, "variants": [one, other]}
    assert differences({"experiment": document}, "a", "b") == ("stages 1 against 4",)


def test_a_field_is_named_as_prose_names_it() -> None:
    one, other = ({"name": name, "options": {"pipelines_per_cell": count}} for name, count in (("a", "auto"), ("b", 2)))
    assert differences({"variants": [one, other]}, "a", "b") == ("pipelines per cell 2 against auto",)


NOTE = worth_text(["seldom"])

EXPERIMENT = """
topology:
  datacenters: [{name: east, hosts: 1}, {name: west, hosts: 1}]
  wan: {latency: 20ms, rate: 100Mbit}
compute: {forward: 20ms, backward: 40ms, activation: 1MiB, gradient: 1MiB}
training: {microbatches: 4, stages: 1, pipelines: 2}
variants:
  - {name: synchronous, schedule: dp}
  - {name: seldom, schedule: diloco, options: {sync_every: 2}}
"""

TIMES = {("10ms", "synchronous"): flat(2.0), ("10ms", "seldom"): flat(1.0)}


def a_run(path: Path, seldom: tuple[str, ...] = ("seldom",)) -> Run:
    run = write_run(path, TIMES)
    for trial in run.glob("trials/*/*/*/trial.json"):
        facts = json.loads(trial.read_text())
        if facts["variant"] in seldom:
            trial.write_text(json.dumps({**facts, "synchronization": {"sync_every": 1, "fragments": 1, "delay": 0}}))
    return load_run(run)


def test_the_sentence_is_that_of_the_documentation() -> None:
    page = " ".join(Path("docs/local-updates.md").read_text(encoding="utf-8").split())
    assert worth_text(["DiLoCo"]) in page


def test_it_stands_once_in_the_report_s_table_and_once_in_the_chart_s_caption(tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text(EXPERIMENT)
    run, page = wanbed.simulate(tmp_path / "two.yaml", runs=tmp_path), tmp_path / "report.html"
    write_report([run], page)
    shown = re.sub("<svg.*?</svg>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert shown.count(f">{NOTE}") + shown.count(f" {NOTE}") == 2
    assert table_text([run], "md").count(NOTE) == 1


def test_it_stands_in_the_chart_s_caption(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run")
    chart = iteration_time_chart(ReportedRuns.of({"": run}), Styles.of({"": run.variants}))
    assert chart is not None
    assert chart.reading.count(NOTE) == 1


def test_it_stands_once_in_a_comparison_of_the_two(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run")
    found = compare(check(run, run, names=[("synchronous", "seldom")]))
    assert found.document()["notes"] == [NOTE]
    assert markdown(found).count("is not worth one of data parallelism") == 1


def test_variants_that_are_alike_have_no_such_sentence(tmp_path: Path) -> None:
    synchronous, local = a_run(tmp_path / "a", ()), a_run(tmp_path / "b", ("synchronous", "seldom"))
    assert worth_note(headline(synchronous)) == worth_note(headline(local)) == ""
    assert compare(check(local, local, names=[("synchronous", "seldom")])).notes == ()


ENCODED = """
topology:
  datacenters: [{name: east, hosts: 1}, {name: west, hosts: 1}]
  wan: {latency: 20ms, rate: 100Mbit}
compute: {forward: 20ms, activation: 1MiB}
training: {microbatches: 2, stages: 2}
variants:
  - {name: plain, schedule: gpipe}
  - {name: same, schedule: gpipe, transport: {activation: {wire: bf16}}}
  - {name: int8, schedule: gpipe, transport: {activation: {wire: int8}}}
  - {name: also int8, schedule: 1f1b, transport: {activation: {wire: int8, encode: 1GB/s}}}
  - {name: fed back, schedule: gpipe, transport: {activation: {wire: int8, error_feedback: true}}}
"""


def test_variants_that_send_other_numbers_over_the_wan_are_said_to_learn_otherwise(tmp_path: Path) -> None:
    (tmp_path / "encoded.yaml").write_text(ENCODED)
    run = wanbed.simulate(tmp_path / "encoded.yaml", runs=tmp_path)
    assert encoded_text(["int8", "also int8", "fed back"]) in worth_note(headline(run))

    def notes(one: str, other: str) -> tuple[str, ...]:
        return compare(check(run, run, names=[(one, other)])).notes

    assert notes("plain", "same") == notes("int8", "also int8") == ()
    assert notes("plain", "int8") == notes("int8", "same") == (encoded_text(["int8"]),)
    assert notes("int8", "fed back") == (encoded_text(["int8", "fed back"]),)
    assert [trial.activation_wire for trial in run.trials] == [None, None, "int8", "int8", "int8, fed back"]

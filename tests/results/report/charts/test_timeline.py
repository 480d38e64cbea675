"""The timeline of a program: a row for each rank, its edges, and only what a profiler recorded."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

import wanbed
from tests.support.results.programs import ProgramOnPaper, program_run
from wanbed import results
from wanbed.results import metrics
from wanbed.results.reading.run import Run
from wanbed.results.report.charts import timeline
from wanbed.results.report.charts.chart import Chart
from wanbed.results.report.charts.colours import COMPUTE_COLOURS, GREY, PREFILL_COLOUR, Styles
from wanbed.results.report.charts.timeline import IDLE_COLOUR, MAX_GPUS, timeline_chart
from wanbed.results.report.reported_runs import ReportedRuns

BuildRun = Callable[..., Path]


@pytest.fixture
def run(build_run: BuildRun) -> Run:
    return results.load(build_run())


def test_each_variant_has_its_timeline_at_the_longest_latency(run: Run) -> None:
    chart = timeline_chart(ReportedRuns.of({"": run}), Styles.of({"": run.variants}))
    assert chart is not None
    assert chart.title == "One iteration, GPU by GPU, at WAN latency 40ms"
    headings = [drawing.heading.label for drawing in chart.drawings if drawing.heading]
    assert [heading.split(",")[0] for heading in headings] == ["one connection", "many connections"]
    assert all(heading.endswith(("iteration 1", "iteration 2")) for heading in headings)


def test_gpus_are_rows_grouped_by_datacenter_with_time_below(run: Run) -> None:
    chart = timeline_chart(ReportedRuns.of({"": run}), Styles.of({"": run.variants}))
    assert chart is not None
    for picture in (chart.drawings[0].wide, chart.drawings[0].narrow):
        places = [picture.index(f">{host}<") for host in ("east-0", "east-1", "central-0", "west-1")]
        assert places == sorted(places)
        assert all(f">{datacenter}<" in picture for datacenter in ("east", "central", "west"))
        assert ">time since the iteration began (s)<" in picture


def test_the_legend_names_what_is_drawn_and_nothing_else(run: Run) -> None:
    chart = timeline_chart(ReportedRuns.of({"": run}), Styles.of({"": run.variants}))
    assert chart is not None
    assert [entry.label for entry in chart.legend] == [
        "forward",
        "recompute",
        "backward",
        "sending",
        "receiving",
        "idle",
    ]
    assert all(entry.style.colour.lower() in chart.drawings[0].wide.lower() for entry in chart.legend)
    assert COMPUTE_COLOURS["optimizer"] not in {entry.style.colour for entry in chart.legend}


def test_every_computation_of_the_iteration_is_drawn(run: Run) -> None:
    chart = timeline_chart(ReportedRuns.of({"": run}), Styles.of({"": run.variants}))
    assert chart is not None
    outlines = [part for part in chart.drawings[0].wide.split("<path") if COMPUTE_COLOURS["backward"].lower() in part]
    assert [outline.count("M ") for outline in outlines] == [6 * 8]


def test_the_reading_gives_the_share_of_time_computed(run: Run) -> None:
    chart = timeline_chart(ReportedRuns.of({"": run}), Styles.of({"": run.variants}))
    assert chart is not None
    spans = run.spans[(run.spans["sweep_point"] == 1) & (run.spans["variant"] == "one connection")]
    own = spans[(spans["iteration"] == int(str(chart.drawings[0].heading).split("iteration ")[1][0]))]
    own = own[own["kind"].isin(COMPUTE_COLOURS)]
    share = (own["end_ns"] - own["start_ns"]).sum() / 6 / (own["end_ns"].max() - own["start_ns"].min())
    assert f"computed {100 * share:.1f}\u00a0% of the time with one connection" in chart.reading


def test_prefill_is_drawn_in_the_bubbles_until_the_iteration_ends_and_is_reported(build_run: BuildRun) -> None:
    run = results.load(build_run(variants=("alone", "filled"), latencies=("40ms",), prefill={"filled": 20.0}))
    chart = timeline_chart(ReportedRuns.of({"": run}), Styles.of({"": run.variants}))
    assert chart is not None
    assert [entry.label for entry in chart.legend if entry.style.colour == PREFILL_COLOUR] == ["prefill (lower)"]
    alone, filled = (drawing.wide.lower().count(PREFILL_COLOUR.lower()) for drawing in chart.drawings)
    assert (alone, filled > 0) == (0, True)
    windows = metrics.iteration_windows(run.spans[run.spans["variant"] == "filled"])
    heading = chart.drawings[1].heading
    assert heading is not None
    window = windows.loc[int(heading.label.split("iteration ")[1])]
    prefill = run.spans[run.spans["kind"] == "prefill"]
    meanwhile = (prefill["start_ns"] < window["end_ns"]) & (prefill["end_ns"] > window["start_ns"])
    (outline,) = (part for part in chart.drawings[1].wide.split("<path") if PREFILL_COLOUR.lower() in part)
    assert outline.count("M ") == meanwhile.sum()
    assert "including prefill, of the time with filled" in chart.reading


def test_gpus_of_a_pool_come_last_in_their_datacenter(build_run: BuildRun) -> None:
    run = results.load(build_run(variants=("alone", "filled"), latencies=("40ms",), prefill={"filled": 20.0}))
    own = run.spans[(run.spans["variant"] == "filled") & (run.spans["kind"] == "prefill")]
    pool = own[own["host"] == "west-1"].assign(host="west-serving-0", rank=6, pipeline=-1, stage=-1)
    assert len(pool)
    chart = timeline_chart(
        ReportedRuns.of({"": replace(run, spans=pd.concat([run.spans, pool]))}), Styles.of({"": run.variants})
    )
    assert chart is not None
    picture = chart.drawings[1].wide
    hosts = ("east-0", "east-1", "central-0", "central-1", "west-0", "west-1", "west-serving-0")
    places = [picture.index(f">{host}<") for host in hosts]
    assert places == sorted(places)


def test_bubbles_show_as_idle_on_every_gpu(run: Run) -> None:
    chart = timeline_chart(ReportedRuns.of({"": run}), Styles.of({"": run.variants}))
    assert chart is not None
    outlines = [part for part in chart.drawings[0].wide.split("<path") if IDLE_COLOUR.lower() in part]
    assert [outline.count("M ") for outline in outlines] == [6]


def test_of_very_many_spans_those_close_together_are_drawn_as_one(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    styles = Styles.of({"": run.variants})
    whole = timeline_chart(ReportedRuns.of({"": run}), styles)
    assert whole is not None
    whole_length = len(whole.drawings[0].wide)
    monkeypatch.setattr(timeline, "MAX_SPANS", 100)
    merged = timeline_chart(ReportedRuns.of({"": run}), styles)
    assert merged is not None
    assert len(merged.drawings[0].wide) < whole_length
    assert "drawn as one" in merged.reading
    assert "drawn as one" not in whole.reading


def test_an_incomplete_sweep_point_gives_way_to_one_where_all_variants_ran(build_run: BuildRun) -> None:
    run = results.load(build_run(finished_trials=3))
    chart = timeline_chart(ReportedRuns.of({"": run}), Styles.of({"": run.variants}))
    assert chart is not None
    assert chart.title.endswith("at WAN latency 10ms")
    assert len(chart.drawings) == 2


def test_variants_far_apart_get_a_time_scale_each(run: Run) -> None:
    stretched = run.spans.copy()
    slow = stretched["variant"] == "one connection"
    stretched.loc[slow, ["start_ns", "end_ns"]] *= 10
    chart = timeline_chart(ReportedRuns.of({"": replace(run, spans=stretched)}), Styles.of({"": run.variants}))
    assert chart is not None
    assert "Each picture has its own time scale." in chart.reading


def test_of_very_many_gpus_the_first_are_drawn_and_the_rest_counted(run: Run) -> None:
    copies = [run.spans.assign(gpu=gpu, pipeline=gpu) for gpu in range(5)]
    chart = timeline_chart(ReportedRuns.of({"": replace(run, spans=pd.concat(copies))}), Styles.of({"": run.variants}))
    assert chart is not None
    assert f"The first {MAX_GPUS} of 30 GPUs are drawn." in chart.reading
    assert ">east-0:4<" in chart.drawings[0].wide


def test_nothing_measured_is_no_chart(build_run: BuildRun) -> None:
    assert timeline_chart(ReportedRuns.of({"": results.load(build_run(finished_trials=0))}), Styles({}, {})) is None


def chart_of(path: Path, **papers: ProgramOnPaper) -> Chart | None:
    run = results.load(program_run(path, papers))
    return timeline_chart(ReportedRuns.of({"": run}), Styles.of({"": run.variants}))


def outlines(chart: Chart, colour: str) -> int:
    parts = [part for part in chart.drawings[0].wide.split("<path") if f"fill: {colour.lower()}" in part.lower()]
    return sum(part.count("M ") for part in parts)


def test_rows_are_ranks_in_their_order_with_their_hosts(tmp_path: Path) -> None:
    chart = chart_of(tmp_path, ddp=ProgramOnPaper())
    assert chart is not None
    picture = chart.drawings[0].wide
    places = [picture.index(f">{label}<") for label in ("rank 0 on east-0", "rank 1 on west-0", "rank 2 on south-0")]
    assert places == sorted(places)
    headings = [picture.index(f">{datacenter}<") for datacenter in ("east", "west", "south")]
    assert headings == sorted(headings)
    assert ">rank 2<" in chart.drawings[0].narrow or ">rank 2 on south-0<" in chart.drawings[0].narrow


def test_a_profiled_iteration_is_drawn_with_what_the_legend_names(tmp_path: Path) -> None:
    chart = chart_of(tmp_path, ddp=ProgramOnPaper(profiled=2))
    assert chart is not None
    assert chart.title == "One iteration, rank by rank"
    assert [entry.label for entry in chart.legend] == ["forward", "backward", "optimizer", "all-reduce", "idle"]
    (heading,) = [drawing.heading for drawing in chart.drawings if drawing.heading]
    assert heading.label in {"ddp, iteration 4, profiled", "ddp, iteration 5, profiled"}
    assert outlines(chart, IDLE_COLOUR) == 3
    assert chart.drawings[0].wide.count(f"stroke: {GREY.lower()}") >= 1
    assert "Vertical lines are where a rank's iteration begins and ends." in chart.reading


def test_what_was_not_profiled_is_not_drawn_as_idle(tmp_path: Path) -> None:
    assert chart_of(tmp_path / "alone", ddp=ProgramOnPaper(profiled=0)) is None
    chart = chart_of(tmp_path / "both", ddp=ProgramOnPaper(), other=ProgramOnPaper(profiled=0))
    assert chart is not None
    assert len(chart.drawings) == 1
    assert "Nothing was profiled of other, so that it is not drawn." in chart.reading


SELDOM = """
topology: {datacenters: [{name: east, hosts: 1}, {name: west, hosts: 1}], wan: {latency: 20ms, rate: 100Mbit}}
compute: {forward: 20ms, backward: 40ms, activation: 1MiB, gradient: 4MiB}
training: {stages: 1, pipelines: 2, microbatches: 2, iterations: %d, warmup: %d}
variants: [{name: diloco, schedule: diloco, options: {sync_every: 4, delay: 3}}]
"""


def seldom(path: Path, iterations: int, warmup: int) -> Run:
    (path / "seldom.yaml").write_text(SELDOM % (iterations, warmup))
    return wanbed.simulate(path / "seldom.yaml", runs=path)


@pytest.mark.parametrize(
    ("iterations", "warmup", "drawn"),
    [
        pytest.param(5, 1, "diloco, iterations 0 to 3", id="the only one began in the warm-up"),
        pytest.param(9, 1, "diloco, iterations 4 to 7", id="a later one did not"),
    ],
)
def test_of_replicas_that_synchronise_seldom_a_synchronisation_is_drawn(
    iterations: int, warmup: int, drawn: str, tmp_path: Path
) -> None:
    run = seldom(tmp_path, iterations, warmup)
    chart = timeline_chart(ReportedRuns.of({"": run}), Styles.of({"": run.variants}))
    assert chart is not None
    (heading,) = [drawing.heading for drawing in chart.drawings if drawing.heading]
    assert heading.label == drawn
    assert "all-reduce" in [entry.label for entry in chart.legend]


def test_a_training_that_ended_before_its_first_synchronisation_has_no_timeline(tmp_path: Path) -> None:
    run = seldom(tmp_path, 5, 1)
    ended = replace(run, spans=run.spans[run.spans["kind"] != "all_reduce"])
    assert timeline_chart(ReportedRuns.of({"": ended}), Styles.of({"": ended.variants})) is None

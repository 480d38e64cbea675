"""The timeline of a program: a row for each rank, its edges, and only what a profiler recorded."""

from pathlib import Path

from tests.support.results.programs import ProgramOnPaper, program_run
from wanbed import results
from wanbed.results.report.charts.chart import Chart
from wanbed.results.report.charts.drawing.colours import GREY, Styles
from wanbed.results.report.charts.timeline import IDLE_COLOUR, timeline_chart


def chart_of(path: Path, **papers: ProgramOnPaper) -> Chart | None:
    run = results.load(program_run(path, papers))
    return timeline_chart(run, Styles.of({"": run.variants}), "a")


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

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.results.reported import with_headline
from wanbed import results
from wanbed.results.reading.headline import GpuUtilization, HeadlineRow, IterationTimes, Standing, WanUse, headline
from wanbed.results.reading.validity import Saturation
from wanbed.results.report.charts.colours import Styles
from wanbed.results.report.charts.iteration_time import (
    MAX_PANELS,
    MAX_SWEEP_POINTS,
    iteration_time_chart,
)
from wanbed.results.report.charts.svg_figure import SvgAxes
from wanbed.results.report.charts.swept_points import latency_ms

BuildRun = Callable[..., Path]
STYLES = Styles.of({"": ["gpipe", "atlas"]})


def row(
    point: int, variant: str, time_s: float | None, speed_up: float | None = None, run: str = "", **values: str
) -> HeadlineRow:
    return HeadlineRow(
        run=run,
        point=point,
        values={name.replace("_", "."): value for name, value in values.items()},
        variant=variant,
        repeats=1,
        times=IterationTimes(time_s, () if time_s is None else (time_s,), None, 1, exact=False),
        gpus=GpuUtilization(0.5, 0.5),
        wan=WanUse(1.0, 1.0),
        standing=Standing(simulated=False, calibrated=True, saturation=Saturation.of([{}])),
        speed_up=speed_up,
        tokens_per_s=1.0,
    )


def repeated(
    row: HeadlineRow, times_s: tuple[float, ...], interval_s: tuple[float, float] | None = None
) -> HeadlineRow:
    return replace(row, times=replace(row.times, of_repeats_s=times_s, interval_s=interval_s))


def drawn(rows: Sequence[HeadlineRow], monkeypatch: pytest.MonkeyPatch) -> tuple[list[float], list[Any]]:
    """The heights of the points that are drawn, and the intervals."""
    points: list[float] = []
    bars: list[Any] = []
    plot = SvgAxes.plot

    def note(axis: SvgAxes, x: Any, y: Any, **look: Any) -> Any:
        points.extend(y if look.get("marker") else ())
        return plot(axis, x, y, **look)

    monkeypatch.setattr(SvgAxes, "plot", note)
    monkeypatch.setattr(
        "wanbed.results.report.charts.iteration_time.interval_bar",
        lambda axis, at, interval, scale: bars.append(interval),
    )
    chart = iteration_time_chart(with_headline(rows), STYLES)
    assert chart is not None
    assert chart.drawings[0].wide
    return points, bars


@pytest.mark.parametrize("swept", [{}, {"topology_wan_latency": "10ms"}])
def test_below_three_repeats_every_repeat_is_a_point_and_nothing_has_a_bar(
    swept: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [repeated(row(0, "gpipe", 1.5, **swept), (1.0, 2.0)), row(0, "atlas", 3.0, **swept)]
    assert drawn(rows, monkeypatch) == ([1.0, 2.0, 3.0], [])


def test_an_interval_is_a_bar_on_the_median(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [repeated(row(0, "gpipe", 2.0), (1.0, 2.0, 4.0), (1.0, 4.0))]
    assert drawn(rows, monkeypatch) == ([2.0], [(1.0, 4.0)])


def test_the_reading_says_what_bars_and_points_are() -> None:
    sure = repeated(row(0, "gpipe", 2.0), (1.0, 2.0, 4.0), (1.0, 4.0))
    two = repeated(row(0, "atlas", 1.5), (1.0, 2.0))
    readings = [
        chart.reading
        for rows in ([sure, two], [row(0, "gpipe", 2.0)])
        if (chart := iteration_time_chart(with_headline(rows), STYLES))
    ]
    assert "Bars are 95 % intervals of the median. Where there are two repeats, each is a point." in readings[0]
    assert "interval" not in readings[1]


@pytest.mark.parametrize(
    ("text", "expected"), [("10ms", 10), ("500us", 0.5), ("0.04s", 40), ("20 ms", 20), ("fast", None), ("7", None)]
)
def test_swept_latencies_become_milliseconds(text: str, expected: float | None) -> None:
    assert latency_ms({"topology.wan.latency": text}) == expected


def test_the_chart_names_its_axes_with_units_and_carries_a_legend(build_run: BuildRun) -> None:
    run = results.load(build_run())
    styles = Styles.of({"": run.variants})
    chart = iteration_time_chart(with_headline(headline(run)), styles)
    assert chart is not None
    assert [(entry.label, entry.style) for entry in chart.legend] == list(styles.variants.items())
    for picture in (chart.drawings[0].wide, chart.drawings[0].narrow):
        assert ">iteration time (s)<" in picture
        assert ">one-way WAN latency (ms)<" in picture
        for style in styles.variants.values():
            assert style.colour.lower() in picture.lower()


def test_the_reading_says_what_the_farthest_latency_costs() -> None:
    rows = [
        row(0, "gpipe", 1.0, 1.0, topology_wan_latency="10ms"),
        row(0, "atlas", 1.0, 1.0, topology_wan_latency="10ms"),
        row(1, "gpipe", 4.0, 1.0, topology_wan_latency="40ms"),
        row(1, "atlas", 1.25, 3.2, topology_wan_latency="40ms"),
    ]
    chart = iteration_time_chart(with_headline(rows), STYLES)
    assert chart is not None
    assert chart.reading.replace("\u00a0", " ") == (
        "At 40 ms, atlas is the fastest, 1.25 s an iteration against 4.00 s of gpipe: a speed-up of 3.20x. "
        "From 10 to 40 ms, gpipe takes 4.00x and atlas takes 1.25x as long."
    )


def test_the_reading_names_the_first_variant_if_it_is_the_fastest() -> None:
    chart = iteration_time_chart(with_headline([row(0, "gpipe", 2.0), row(0, "atlas", 3.0)]), STYLES)
    assert chart is not None
    assert chart.reading.replace("\u00a0", " ") == "gpipe is the fastest, 2.00 s an iteration; atlas takes 1.50x that."


@pytest.mark.parametrize(
    ("times_s", "reading"),
    [
        ({"gpipe": 2.0, "atlas": 2.0}, "gpipe and atlas are equally fast, 2.00 s an iteration."),
        ({"gpipe": 2.001, "atlas": 2.0}, "gpipe and atlas are equally fast, 2.00 s an iteration."),
        (
            {"gpipe": 2.0, "atlas": 2.0, "1f1b": 3.0},
            "gpipe and atlas are the fastest, 2.00 s an iteration; 1f1b takes 1.50x that.",
        ),
        (
            {"gpipe": 4.0, "atlas": 2.0, "1f1b": 2.0},
            "atlas and 1f1b are the fastest, 2.00 s an iteration against 4.00 s of gpipe: a speed-up of 2.00x.",
        ),
    ],
)
def test_a_tie_is_no_win(times_s: dict[str, float], reading: str) -> None:
    rows = [row(0, variant, time_s) for variant, time_s in times_s.items()]
    chart = iteration_time_chart(with_headline(rows), Styles.of({"": list(times_s)}))
    assert chart is not None
    assert chart.reading.replace("\u00a0", " ") == reading


@pytest.mark.parametrize("latencies", [("10ms",), ("10ms", "20ms", "30ms")])
def test_a_run_without_a_sweep_has_a_named_point_beside_those_of_another(latencies: tuple[str, ...]) -> None:
    swept = [row(at, "gpipe", 2.0, run="swept", microbatches=each) for at, each in enumerate(latencies)]
    styles = Styles.of({"single": ["gpipe"], "swept": ["gpipe"]})
    chart = iteration_time_chart(with_headline([row(0, "gpipe", 2.0, run="single"), *swept]), styles)
    assert chart is not None
    named = chart.drawings[0].wide if len(latencies) == 1 else chart.reading.replace("0: no sweep; 1:", ">no sweep<")
    assert ">no sweep<" in named


def test_runs_share_a_variant_s_colour_and_each_has_its_line() -> None:
    styles = Styles.of({"old": ["gpipe", "atlas"], "new": ["atlas"]})
    rows = [
        row(point, variant, time_s, time_s and 4.0 / time_s, run, topology_wan_latency=latency)
        for run, variant, time_s in (("old", "gpipe", 4.0), ("old", "atlas", 2.0), ("new", "atlas", 1.0))
        for point, latency in enumerate(("10ms", "40ms"))
    ]
    chart = iteration_time_chart(with_headline(rows), styles)
    assert chart is not None
    assert [entry.label for entry in chart.legend] == ["gpipe", "atlas", "old", "new"]
    assert [entry.style.line for entry in chart.legend] == ["-", "-", "-", "--"]
    old, new = (styles.of_series("atlas", run) for run in ("old", "new"))
    assert (old.colour, old.marker) == (new.colour, new.marker)
    assert (old.filled, new.filled) == (True, False)
    assert "stroke-dasharray" in chart.drawings[0].wide
    assert chart.reading.replace("\u00a0", " ") == (
        "At 40 ms, in old atlas is the fastest, 2.00 s an iteration against 4.00 s of gpipe: a speed-up of 2.00x. "
        "At 40 ms, in new atlas takes 1.00 s an iteration."
    )


def test_sweep_points_of_several_runs_are_the_same_where_their_swept_values_are() -> None:
    styles = Styles.of({"old": ["gpipe"], "new": ["gpipe"]})
    rows = [row(0, "gpipe", 1.0, run="old", microbatches="8"), row(7, "gpipe", 1.0, run="new", microbatches="8")]
    chart = iteration_time_chart(with_headline(rows), styles)
    assert chart is not None
    assert chart.drawings[0].wide.count(">microbatches 8<") == 1


def test_another_sweep_beside_latency_gets_panels() -> None:
    rows = [
        row(2 * m + i, "gpipe", 1.0 + i, microbatches=f"{m}", topology_wan_latency=latency)
        for m in range(MAX_PANELS + 1)
        for i, latency in enumerate(("10ms", "40ms"))
    ]
    chart = iteration_time_chart(with_headline(rows), STYLES)
    assert chart is not None
    assert f">microbatches {MAX_PANELS - 1}<" in chart.drawings[0].wide
    assert f">microbatches {MAX_PANELS}<" not in chart.drawings[0].wide
    assert f"The first {MAX_PANELS} of {MAX_PANELS + 1} combinations are drawn; the table has all." in chart.reading


def test_another_sweep_alone_stands_by_sweep_point() -> None:
    rows = [row(i, "gpipe", 1.0 + i, schedule=name) for i, name in enumerate(("gpipe", "atlas"))]
    chart = iteration_time_chart(with_headline(rows), STYLES)
    assert chart is not None
    assert chart.title == "Iteration time"
    assert ">schedule atlas<" in chart.drawings[0].wide


@pytest.mark.parametrize(
    ("path", "values", "axis", "ticks"),
    [
        ("training_microbatches", ("4", "8"), "training.microbatches", ("4", "8")),
        ("topology_wan_rate", ("500Mbit", "2Gbit"), "topology.wan.rate (Mbit/s)", ("500", "2000")),
        ("transport_window", ("512KiB", "4MiB"), "transport.window (MiB)", ("0.5", "4")),
        ("topology_wan_loss", ("0.1%", "1%"), "topology.wan.loss (%)", ("0.1", "1")),
    ],
)
def test_another_swept_number_is_the_axis(
    path: str, values: tuple[str, ...], axis: str, ticks: tuple[str, ...]
) -> None:
    rows = [row(i, "gpipe", 1.0 + i, **{path: value}) for i, value in enumerate(values)]
    chart = iteration_time_chart(with_headline(rows), STYLES)
    assert chart is not None
    assert chart.title == f"Iteration time against {path.replace('_', '.')}"
    assert f">{axis}<" in chart.drawings[0].wide
    for tick in ticks:
        assert f">{tick}<" in chart.drawings[0].wide


def test_values_of_which_one_is_no_number_stand_by_sweep_point() -> None:
    rows = [row(i, "gpipe", 1.0, topology_wan_rate=value) for i, value in enumerate(("1Gbit", "unlimited"))]
    chart = iteration_time_chart(with_headline(rows), STYLES)
    assert chart is not None
    assert chart.title == "Iteration time"


def test_many_sweep_points_are_numbered_and_explained() -> None:
    chart = iteration_time_chart(with_headline([row(i, "gpipe", 1.0, schedule=f"s{i}") for i in range(5)]), STYLES)
    assert chart is not None
    assert "3: schedule s3" in chart.reading


def test_of_very_many_sweep_points_the_first_are_drawn() -> None:
    rows = [row(i, "gpipe", 1.0, schedule=f"s{i}") for i in range(MAX_SWEEP_POINTS + 6)]
    chart = iteration_time_chart(with_headline(rows), STYLES)
    assert chart is not None
    assert f"{MAX_SWEEP_POINTS - 1}: schedule s{MAX_SWEEP_POINTS - 1}" in chart.reading
    assert f"schedule s{MAX_SWEEP_POINTS}" not in chart.reading
    assert chart.reading.endswith(
        f" The first {MAX_SWEEP_POINTS} of {MAX_SWEEP_POINTS + 6} sweep points are drawn; the table has all."
    )


def test_of_very_many_latencies_some_are_named_the_last_among_them() -> None:
    rows = [row(i, "gpipe", 1.0, topology_wan_latency=f"{100 + i}ms") for i in range(41)]
    chart = iteration_time_chart(with_headline(rows), STYLES)
    assert chart is not None
    assert sum(f">{100 + i}<" in chart.drawings[0].narrow for i in range(41)) < 41
    assert ">140<" in chart.drawings[0].wide


def test_nothing_measured_is_no_chart() -> None:
    assert iteration_time_chart(with_headline([row(0, "gpipe", None)]), STYLES) is None


def test_a_picture_is_the_same_each_time_and_shares_no_reference_with_another() -> None:
    rows = [row(0, "gpipe", 1.0, topology_wan_latency="10ms")]
    one, again = (iteration_time_chart(with_headline(rows), STYLES) for _ in range(2))
    assert one is not None
    assert again is not None
    assert one.drawings[0].wide == again.drawings[0].wide
    pictures = [one.drawings[0].wide, replace(one.drawings[0], salt="another").wide]
    identifiers = [{part.split('"')[0] for part in picture.split(' id="')[1:]} for picture in pictures]
    assert identifiers[0]
    assert identifiers[0].isdisjoint(identifiers[1])

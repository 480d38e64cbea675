from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.results.report.charts.test_iteration_time import row
from tests.support.results.reported import with_headline
from wanbed.results.reading.headline import HeadlineRow
from wanbed.results.report.charts.colours import Styles
from wanbed.results.report.charts.heat_map import MAX_PANELS, heat_map_chart

STYLES = Styles({}, {})


def timed(row: HeadlineRow, time_s: float | None) -> HeadlineRow:
    return replace(row, times=replace(row.times, median_s=time_s))


def grid(
    variants: Sequence[str] = ("gpipe", "atlas"),
    latencies: Sequence[str] = ("40ms", "5ms", "10ms"),
    rates: Sequence[str] = ("1Gbit", "100Mbit"),
) -> list[HeadlineRow]:
    return [
        row(point, variant, (1.0 + point) / (1 + number), topology_wan_latency=latency, topology_wan_rate=rate)
        for point, (latency, rate) in enumerate((latency, rate) for latency in latencies for rate in rates)
        for number, variant in enumerate(variants)
    ]


def test_a_sweep_over_two_paths_has_a_panel_a_variant_and_one_of_its_speed_up() -> None:
    chart = heat_map_chart(with_headline(grid()), STYLES)
    assert chart is not None
    times, ratios = chart.drawings
    assert (times.name, ratios.name) == ("time", "speed-up")
    for picture in (times.wide, times.narrow):
        assert ">gpipe<" in picture
        assert ">atlas<" in picture
        assert ">iteration time (s)<" in picture
        assert ">6.00<" in picture
    assert ">gpipe<" not in ratios.wide
    assert ratios.wide.count(">2.00x<") == 6


def test_values_on_the_axes_rise_whatever_their_order_in_the_sweep() -> None:
    chart = heat_map_chart(with_headline(grid()), STYLES)
    assert chart is not None
    picture = chart.drawings[0].wide
    places = [picture.index(f">{value}<") for value in ("5ms", "10ms", "40ms", "100Mbit", "1Gbit")]
    assert places == sorted(places)


def test_the_reading_counts_where_each_variant_is_fastest() -> None:
    rows = grid()
    # The first variant is alike within a per cent at one sweep point, and faster at another.
    rows[1] = timed(rows[1], 1.005)
    rows[3] = timed(rows[3], 4.0)
    chart = heat_map_chart(with_headline(rows), STYLES)
    assert chart is not None
    assert chart.reading.replace("\u00a0", " ") == (
        "Of 6 sweep points, the fastest, or within 1 % of it, are: gpipe at 2 and atlas at 5; frames mark them. "
        "Speed-ups over the first variant are from 0.500x to 2.00x; cells are hatched where a variant is "
        "over 1 % slower than it."
    )


def test_one_variant_has_no_speed_up_and_its_extremes_are_said() -> None:
    chart = heat_map_chart(with_headline(grid(variants=["gpipe"])), STYLES)
    assert chart is not None
    assert len(chart.drawings) == 1
    assert chart.reading.replace("\u00a0", " ") == (
        "The shortest iteration takes 1.00 s, at WAN latency 40ms, topology.wan.rate 1Gbit and the longest iteration "
        "takes 6.00 s, at WAN latency 10ms, topology.wan.rate 100Mbit."
    )


def test_of_very_many_variants_the_first_are_drawn() -> None:
    chart = heat_map_chart(with_headline(grid(variants=[f"v{number}" for number in range(MAX_PANELS + 2)])), STYLES)
    assert chart is not None
    assert f"The first {MAX_PANELS} of {MAX_PANELS + 2} variants are drawn" in chart.reading


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [row(0, "gpipe", 1.0)],
        [row(i, "gpipe", 1.0, topology_wan_latency=f"{i}ms") for i in range(4)],
        grid(rates=["1Gbit"]),
        [row(i, "gpipe", 1.0, topology_wan_latency=f"{i}ms", topology_wan_rate=f"{i + 1}Gbit") for i in range(4)],
        [row(i, "gpipe", 1.0, a=str(i % 2), b=str(i // 2 % 2), c=str(i // 4)) for i in range(8)],
        [timed(each, None) for each in grid()],
    ],
    ids=["nothing", "no sweep", "one path", "one value", "values that vary together", "three paths", "unmeasured"],
)
def test_any_other_run_has_no_heat_map(rows: list[HeadlineRow]) -> None:
    assert heat_map_chart(with_headline(rows), STYLES) is None

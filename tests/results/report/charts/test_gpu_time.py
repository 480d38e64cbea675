from collections.abc import Callable
from pathlib import Path

from wanbed import results
from wanbed.results.report.charts.gpu_time import MAX_BARS, PART_NAMES, drawn_points, gpu_time_chart
from wanbed.results.report.gpu_time_shares import PARTS, GpuTimeShares, gpu_time_shares

BuildRun = Callable[..., Path]


def shares(point: int, variant: str, run: str = "", **parts_ns: int) -> GpuTimeShares:
    whole = {**dict.fromkeys(PARTS, 0), **parts_ns}
    return GpuTimeShares(run, point, {"microbatches": str(point)}, variant, whole, sum(whole.values()))


def test_every_part_there_is_has_a_bar_and_a_legend_and_no_other() -> None:
    chart = gpu_time_chart([shares(0, "gpipe", training=60, link=30, fill_drain=10)], 1, "a")
    assert chart is not None
    assert [entry.label for entry in chart.legend] == [PART_NAMES[part] for part in ("training", "link", "fill_drain")]
    for picture in (chart.drawings[0].wide, chart.drawings[0].narrow):
        for entry in chart.legend:
            assert entry.style.colour.lower() in picture.lower()
        assert ">gpipe<" in picture
        assert ">microbatches 0<" in picture


def test_colours_of_the_parts_differ_and_so_do_patterns_of_the_causes() -> None:
    chart = gpu_time_chart([shares(0, "gpipe", **dict.fromkeys(PARTS, 1))], 1, "a")
    assert chart is not None
    styles = [entry.style for entry in chart.legend]
    assert len({style.colour for style in styles}) == len(PARTS)
    assert len({style.hatch for style in styles[1:]}) == len(PARTS) - 1


def test_the_reading_has_training_and_the_largest_idle_cause() -> None:
    chart = gpu_time_chart([shares(0, "gpipe", training=60, link=30, fill_drain=10)], 1, "a")
    assert chart is not None
    assert chart.reading.replace("\u00a0", " ") == (
        "With microbatches 0, of the time of all GPUs and repeats: gpipe trained for 60.0 % and idled most, 30.0 %, "
        "waiting for the link."
    )


def test_prefill_has_a_part_of_its_own_in_the_bar_and_the_reading() -> None:
    chart = gpu_time_chart([shares(0, "atlas", training=60, prefill=30, fill_drain=10)], 1, "a")
    assert chart is not None
    assert [entry.label for entry in chart.legend][:2] == ["training", "prefill in the bubbles"]
    assert "trained for 60.0 %, prefilled for 30.0 % and idled most, 10.0 %" in chart.reading.replace("\u00a0", " ")


def test_bars_of_several_runs_are_grouped_by_variant() -> None:
    own = [shares(0, variant, run, training=1) for run in ("old", "new") for variant in ("gpipe", "atlas")]
    chart = gpu_time_chart(own, 1, "a")
    assert chart is not None
    labels = ["gpipe, old", "gpipe, new", "atlas, old", "atlas, new"]
    places = [chart.drawings[0].wide.index(f">{label}<") for label in labels]
    assert places == sorted(places)


def test_of_many_sweep_points_evenly_spaced_ones_are_drawn() -> None:
    assert drawn_points(range(5), 4) == [0, 1, 2, 3, 4]
    chosen = drawn_points(range(1000), 4)
    assert len(chosen) == MAX_BARS // 4
    assert (chosen[0], chosen[-1]) == (0, 999)
    chart = gpu_time_chart([shares(0, "gpipe", training=1)], 1000, "a")
    assert chart is not None
    assert chart.reading.endswith(" 1 of 1000 sweep points are drawn.")


def test_nothing_measured_is_no_chart(build_run: BuildRun) -> None:
    assert gpu_time_chart(gpu_time_shares(results.load(build_run(finished_trials=0))), 0, "a") is None

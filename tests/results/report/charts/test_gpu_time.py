"""GPU time of programs beside that of schedules, in one chart and one table."""

import csv
import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.results.programs import ProgramOnPaper, add_program
from wanbed import results
from wanbed.results.reading.run import Run
from wanbed.results.report.charts.gpu_time import (
    MAX_BARS,
    PART_NAMES,
    PARTS,
    PARTS_OF_PROGRAM,
    PITCH_PX,
    GpuTimeShares,
    drawn_points,
    gpu_time_shares,
    hatched,
    shares_chart,
)
from wanbed.results.report.text_formats import table_text

BuildRun = Callable[..., Path]


def shares(point: int, variant: str, run: str = "", **parts_ns: int) -> GpuTimeShares:
    whole = {**dict.fromkeys(PARTS, 0), **parts_ns}
    return GpuTimeShares(run, point, {"microbatches": str(point)}, variant, whole, sum(whole.values()))


def test_every_part_there_is_has_a_bar_and_a_legend_and_no_other() -> None:
    chart = shares_chart([shares(0, "gpipe", training=60, link=30, fill_drain=10)], 1)
    assert chart is not None
    assert [entry.label for entry in chart.legend] == [PART_NAMES[part] for part in ("training", "link", "fill_drain")]
    for picture in (chart.drawings[0].wide, chart.drawings[0].narrow):
        for entry in chart.legend:
            assert entry.style.colour.lower() in picture.lower()
        assert ">gpipe<" in picture
        assert ">microbatches 0<" in picture


def test_colours_of_the_parts_differ_and_so_do_patterns_of_the_causes() -> None:
    chart = shares_chart([shares(0, "gpipe", **dict.fromkeys(PARTS, 1))], 1)
    assert chart is not None
    styles = [entry.style for entry in chart.legend]
    assert len({style.colour for style in styles}) == len(PARTS)
    assert len({style.hatch for style in styles[1:]}) == len(PARTS) - 1


def test_the_reading_has_training_and_the_largest_idle_cause() -> None:
    chart = shares_chart([shares(0, "gpipe", training=60, link=30, fill_drain=10)], 1)
    assert chart is not None
    assert chart.reading.replace("\u00a0", " ") == (
        "With microbatches 0, of the time of all GPUs and repeats: gpipe trained for 60.0 % and idled most, 30.0 %, "
        "waiting for the link."
    )


def test_prefill_has_a_part_of_its_own_in_the_bar_and_the_reading() -> None:
    chart = shares_chart([shares(0, "atlas", training=60, prefill=30, fill_drain=10)], 1)
    assert chart is not None
    assert [entry.label for entry in chart.legend][:2] == ["training", "prefill in the bubbles"]
    assert "trained for 60.0 %, prefilled for 30.0 % and idled most, 10.0 %" in chart.reading.replace("\u00a0", " ")


def test_bars_of_several_runs_are_grouped_by_variant() -> None:
    own = [shares(0, variant, run, training=1) for run in ("old", "new") for variant in ("gpipe", "atlas")]
    chart = shares_chart(own, 1)
    assert chart is not None
    labels = ["gpipe, old", "gpipe, new", "atlas, old", "atlas, new"]
    places = [chart.drawings[0].wide.index(f">{label}<") for label in labels]
    assert places == sorted(places)


def test_of_many_sweep_points_evenly_spaced_ones_are_drawn() -> None:
    assert drawn_points(range(5), 4) == [0, 1, 2, 3, 4]
    chosen = drawn_points(range(1000), 4)
    assert len(chosen) == MAX_BARS // 4
    assert (chosen[0], chosen[-1]) == (0, 999)
    chart = shares_chart([shares(0, "gpipe", training=1)], 1000)
    assert chart is not None
    assert chart.reading.endswith(" 1 of 1000 sweep points are drawn.")


def test_nothing_measured_is_no_chart(build_run: BuildRun) -> None:
    assert shares_chart(gpu_time_shares(results.load(build_run(finished_trials=0))), 0) is None


HOSTS = tuple((f"{datacenter}-{host}", datacenter) for datacenter in ("east", "central", "west") for host in (0, 1))


@pytest.fixture
def mixed(build_run: Callable[..., Path]) -> Run:
    path = build_run(latencies=("40ms",), variants=("gpipe",))
    add_program(path, "ddp", ProgramOnPaper(hosts=HOSTS), tokens_per_iteration=2048)
    add_program(path, "unprofiled", ProgramOnPaper(hosts=HOSTS, profiled=0))
    return results.load(path)


def test_a_program_has_parts_of_its_own_that_add_up(mixed: Run) -> None:
    gpipe, ddp = gpu_time_shares(mixed)
    assert (set(gpipe.parts_ns), set(ddp.parts_ns)) == (set(PARTS), set(PARTS_OF_PROGRAM))
    # From the end of iteration 4 at the last rank to that of iteration 5, on six GPUs.
    assert ddp.total_ns == 6 * 244_500_000
    assert sum(ddp.share(part) for part in PARTS_OF_PROGRAM) == pytest.approx(1)
    assert ddp.share("fill_drain") == 0


def test_the_chart_has_one_legend_for_both_kinds(mixed: Run) -> None:
    chart = shares_chart(gpu_time_shares(mixed), 1)
    assert chart is not None
    labels = [entry.label for entry in chart.legend]
    assert labels[-2:] == ["idle: in collectives", "idle: for other reasons (Python, launching, data)"]
    assert "idle: in pipeline fill and drain" in labels
    assert len({(entry.style.colour, entry.style.hatch) for entry in chart.legend}) == len(labels)
    assert "ddp trained for" in chart.reading
    assert "in collectives" in chart.reading


def test_fractions_that_a_variant_cannot_have_are_empty(mixed: Run) -> None:
    rows = {row["variant"]: row for row in csv.DictReader(io.StringIO(table_text([mixed], "csv")))}
    assert (rows["ddp"]["idle_fill_drain_fraction"], rows["gpipe"]["idle_collective_fraction"]) == ("", "")
    assert float(rows["ddp"]["idle_collective_fraction"]) > 0.5
    assert {rows["unprofiled"][name] for name in rows["ddp"] if name.endswith("_fraction")} == {""}


def test_a_table_without_programs_has_none_of_their_columns(build_run: Callable[..., Path]) -> None:
    assert "idle_collective_fraction" not in table_text([results.load(build_run(latencies=("40ms",)))], "csv")


def test_what_a_program_does_not_tell_is_unknown(mixed: Run) -> None:
    rows = {row["variant"]: row for row in csv.DictReader(io.StringIO(table_text([mixed], "csv")))}
    assert rows["ddp"]["wan_goodput_bps"] == rows["unprofiled"]["gpu_utilization_fraction"] == ""
    assert float(rows["ddp"]["tokens_per_s"]) == pytest.approx(2048 / 0.2445)
    # The manifest's tokens are those of the schedules.
    assert rows["unprofiled"]["tokens_per_s"] == ""
    _, figures, *_ = table_text([mixed], "md").split("\n\n")
    markdown = {line.split("|")[1].strip(): line for line in figures.splitlines()}
    assert "n/a" in markdown["ddp"]


SIZES = st.floats(0.01, 900)


@given(st.sampled_from(list("/\\x.|-")), SIZES, SIZES)
def test_no_line_reaches_beyond_its_rectangle(pattern: str, width_px: float, height_px: float) -> None:
    segments = hatched(pattern, width_px, height_px)
    assert (segments >= -1e-9).all()
    assert (segments <= np.array([width_px, height_px]) + 1e-9).all()


def test_a_rising_line_rises_and_a_falling_one_falls() -> None:
    for pattern, sign in (("/", -1), ("\\", 1)):
        x, y = (hatched(pattern, 60, 18)[:, 1] - hatched(pattern, 60, 18)[:, 0]).T
        np.testing.assert_allclose(y, sign * x)


def test_lines_are_as_far_apart_in_a_wide_rectangle_as_in_a_narrow_one() -> None:
    for width_px in (60, 600):
        np.testing.assert_allclose(np.diff(hatched("|", width_px, 18)[:, 0, 0]), PITCH_PX)


def test_a_cause_reads_as_part_of_a_sentence() -> None:
    chart = shares_chart([shares(0, "gpipe", training=60, fill_drain=40)], 1)
    assert chart is not None
    assert "idled most, 40.0 %, in pipeline fill and drain." in chart.reading.replace("\u00a0", " ")


def test_the_bars_of_a_run_without_a_sweep_have_a_heading_beside_those_of_another() -> None:
    single = replace(shares(0, "gpipe", run="single", training=60, link=40), values={})
    chart = shares_chart([single, shares(8, "gpipe", run="swept", training=60, link=40)], 2)
    assert chart is not None
    assert ">no sweep<" in chart.drawings[0].wide
    alone = shares_chart([single], 1)
    assert alone is not None
    assert ">no sweep<" not in alone.drawings[0].wide

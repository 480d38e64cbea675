"""GPU time of programs beside that of schedules, in one chart and one table."""

import csv
import io
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.results.programs import ProgramOnPaper, add_program
from wanbed import results
from wanbed.results.reading.run import Run
from wanbed.results.report.charts.gpu_time import gpu_time_chart
from wanbed.results.report.gpu_time_shares import PARTS, PARTS_OF_PROGRAM, gpu_time_shares
from wanbed.results.report.tables import table_text

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
    chart = gpu_time_chart(gpu_time_shares(mixed), 1, "a")
    assert chart is not None
    labels = [entry.label for entry in chart.legend]
    assert labels[-2:] == ["idle: in collectives", "idle: other (Python, launching, data)"]
    assert "idle: pipeline fill and drain" in labels
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

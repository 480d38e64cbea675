import json
from pathlib import Path

import pytest

from studies.paper.part import PARTS, PaperPart, Volume
from studies.paper.reference import RECALLED, PartResult, goodput_chart, write_reference
from tests.studies.paper.outcomes import outcome
from tests.support.runner.emulated_run import constant, write_run
from wanbed.results import load
from wanbed.results.reading.run import Run
from wanbed.runner.validation.agreement import read_agreement
from wanbed.runner.validation.comparison import compare

PART = PaperPart("fig3-pp-latency", "Figure 3: pipelines", ("iteration-time", "gpu-time"), ("iteration-time",))

VOLUME = Volume("fig3-pp-latency", 1, 2, 3)

TIMES = {(point, variant): [2.0 + point] for point in (0, 1) for variant in ("gpipe", "1f1b")}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return load(write_run(tmp_path_factory.mktemp("run") / "runs", TIMES))


@pytest.fixture(scope="module")
def folder(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    result = PartResult(PART, run, compare(run, constant(2.02)))
    folder = tmp_path_factory.mktemp("reference") / "paper"
    written = write_reference(folder, [result], [VOLUME], "In virtual time.", ["fig4-timeline"])
    assert all(path.is_file() for path in written)
    assert written[:2] == [folder / "report.html", folder / "claims.md"]
    return folder


def test_what_is_published_is_the_report_claims_tables_figures_and_the_agreement(folder: Path) -> None:
    assert {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} == {
        "report.html",
        "claims.md",
        "agreement.json",
        "volumes.md",
        "tables/fig3-pp-latency.csv",
        "tables/fig3-pp-latency.md",
        "figures/captions.txt",
        *(
            f"figures/fig3-pp-latency-iteration-time-{width}.{form}"
            for width in ("column", "page")
            for form in ("pdf", "png")
        ),
    }


def test_the_page_is_self_contained_and_names_missing_parts(folder: Path) -> None:
    page = (folder / "report.html").read_text()
    assert "In virtual time." in page
    assert "Without a result: fig4-timeline." in page
    assert "Figure 3: pipelines" in page
    assert page.count("<svg") > 4
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page


def test_every_iteration_time_stands_beside_the_simulated_one(folder: Path) -> None:
    page = (folder / "report.html").read_text()
    assert page.count("+1.0 %") >= 2
    assert page.count("-32.7 %") >= 2


def test_the_agreement_can_be_read_back(folder: Path, run: Run) -> None:
    (compared,) = read_agreement(folder).experiments
    assert (compared.experiment, compared.run) == ("fig3-pp-latency", run.path.name)
    assert compared.comparisons == compare(run, constant(2.02))
    assert json.loads((folder / "agreement.json").read_text())["worst_error"] == pytest.approx(2.02 / 3 - 1)


def test_a_simulation_has_nothing_to_agree_with(run: Run, tmp_path: Path) -> None:
    write_reference(tmp_path / "paper", [PartResult(PART, run, ())], [VOLUME], "Simulated.", [])
    assert not (tmp_path / "paper" / "agreement.json").exists()
    assert "Without a result" not in (tmp_path / "paper" / "report.html").read_text()


def test_writing_again_gives_the_same_bytes(folder: Path, run: Run) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    result = PartResult(PART, run, compare(run, constant(2.02)))
    write_reference(folder, [result], [VOLUME], "In virtual time.", ["fig4-timeline"])
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_the_parts_that_are_published_have_charts() -> None:
    assert all(part.charts for part in PARTS)


MEASURED = [
    outcome("fig5", "one connection", 1.0, latency, steady_goodput_bps=rate_bps)
    for latency, rate_bps in (("10ms", 1.2e9), ("40ms", 3e8))
]


def test_the_reading_has_every_figure_and_the_legend_marks_recalled_ones() -> None:
    chart = goodput_chart(MEASURED, {"one connection": {"10ms": 1.22e9}})
    assert chart is not None
    assert "One connection: 1.20\u00a0Gbit/s at 10 ms and 300\u00a0Mbit/s at 40 ms." in chart.reading
    assert [entry.label for entry in chart.legend] == ["one connection", RECALLED]
    assert "<svg" in chart.drawings[0].wide


def test_nothing_is_drawn_where_latency_was_not_swept() -> None:
    assert goodput_chart([outcome("fig4", "varuna", 1.0, "", steady_goodput_bps=1e9)], {}) is None

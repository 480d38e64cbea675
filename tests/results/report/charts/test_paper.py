import re
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from wanbed import results
from wanbed.results.report.charts.figure_options import SIZES, FigureOptions
from wanbed.results.report.charts.paper import CAPTIONS, DPI
from wanbed.results.report.report import write_report_figures

BuildRun = Callable[..., Path]


@pytest.fixture(scope="module")
def run(build_run_in: Callable[[Path], BuildRun], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_run_in(tmp_path_factory.mktemp("run"))()


@pytest.fixture(scope="module")
def figures(run: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_report_figures([results.load(run)], tmp_path_factory.mktemp("page") / "figures")


def test_every_picture_is_there_for_a_column_and_for_a_page_as_pdf_and_png(figures: list[Path]) -> None:
    stems = (
        "iteration-time",
        "gpu-time",
        "timeline-1-one-connection",
        "timeline-2-many-connections",
        "link-throughput",
    )
    lines = [re.sub(r"-[0-9a-f]{8}-(?=column|page)", "-", file.name) for file in figures]
    pictures = [f"{stem}-{width}.{form}" for stem in stems for width in ("column", "page") for form in ("pdf", "png")]
    assert lines == [*pictures, CAPTIONS]
    assert sorted(figures) == sorted(figures[0].parent.iterdir())


def test_a_png_has_300_dots_an_inch_of_a_column_or_a_page(figures: list[Path]) -> None:
    for file in figures:
        if file.suffix == ".png":
            width, height = struct.unpack(">II", file.read_bytes()[16:24])
            assert width == round(DPI * SIZES["column" if "-column" in file.name else "page"].width_in)
            assert height > width / 4


def test_a_pdf_embeds_its_fonts_as_truetype(figures: list[Path]) -> None:
    for file in figures:
        if file.suffix == ".pdf":
            content = file.read_bytes()
            assert b"/FontFile2" in content
            assert b"/Type3" not in content


def test_the_same_run_gives_the_same_files(run: Path, figures: list[Path], tmp_path: Path) -> None:
    again = write_report_figures([run], tmp_path / "again", FigureOptions(sizes=(SIZES["column"],)))
    before = {file.name: file.read_bytes() for file in figures if "-page." not in file.name}
    assert {file.name: file.read_bytes() for file in again} == before


def test_hostile_names_lead_to_no_other_folder(build_run: BuildRun, tmp_path: Path) -> None:
    run = build_run(variants=("../../up", "_hidden $\\frac$", "x" * 300), latencies=("10ms",))
    column = FigureOptions(sizes=(SIZES["column"],), formats=("svg",))
    for file in write_report_figures([run], tmp_path / "figures", column):
        assert file.resolve().parent == (tmp_path / "figures").resolve()

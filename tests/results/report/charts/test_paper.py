import re
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from wanbed import results
from wanbed.ground.errors import InputError
from wanbed.results.report.charts.chart import Chart, Drawing, LegendEntry
from wanbed.results.report.charts.colours import Style
from wanbed.results.report.charts.figure_options import SIZES, FigureOptions, Size
from wanbed.results.report.charts.paper import CAPTIONS, DPI, draw_figures
from wanbed.results.report.report_figures import write_report_figures

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


def test_captions_have_the_labels_of_the_pictures(run: Path, tmp_path: Path) -> None:
    options = FigureOptions(
        charts=("gpu-time",), sizes=(SIZES["column"],), formats=("svg",),
        labels={"one connection": "many connections", "many connections": "Ours (8)"},
    )  # fmt: skip
    *_, captions = write_report_figures([run], tmp_path / "figures", options)
    text = captions.read_text(encoding="utf-8")
    assert "many connections trained for " in text
    assert "Ours (8) trained for " in text
    assert "one connection" not in text


def test_a_label_does_not_change_words_that_contain_its_name() -> None:
    chart = Chart("c", "GPUs", (), (Drawing("c", "c", lambda *_: 100.0),), "gpu, a gpu-time of gpus")
    options = FigureOptions(sizes=(SIZES["column"],), formats=("svg",))
    labelled = replace(options, labels={"gpu": "Ours"})
    chart = replace(chart, legend=(LegendEntry("gpu", Style("#000000")),))
    assert draw_figures([chart], labelled)[CAPTIONS] == b"c: GPUs. Ours, a gpu-time of gpus\n"


def test_nothing_given_is_both_usual_sizes_as_pdf_and_png() -> None:
    assert FigureOptions.parse() == FigureOptions()
    assert FigureOptions().sizes == tuple(SIZES.values())


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("column", SIZES["column"]),
        ("254mm", Size("254mm", 10.0)),
        ("3.3inx2in", Size("84x51mm", 3.3, 2.0)),
        ("254 mm x 72pt", Size("254x25mm", 10.0, 1.0)),
    ],
)
def test_a_size_is_a_name_or_lengths_and_its_file_has_no_second_point(text: str, size: Size) -> None:
    assert Size.parse(text) == size
    assert "." not in size.name


def test_limits_may_leave_an_end_out() -> None:
    options = FigureOptions.parse(limits=["x=5:", "y=0:2.5"])
    assert options.limits == {"x": (5.0, None), "y": (0.0, 2.5)}


def test_a_label_may_have_any_text() -> None:
    assert FigureOptions.parse(labels=["one connection=a = b"]).labels == {"one connection": "a = b"}


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ({"sizes": ["3"]}, "--size 3: not a size: give column, page, a width like 3.3in"),
        ({"sizes": ["0.2in"]}, "--size 0.2in: 0.2 inches: give 1 to 40 inches"),
        ({"formats": ["jpg"]}, "--figure-format jpg: there is none such, choose of: pdf, png, svg"),
        ({"font_pt": float("nan")}, "--font-size nan: give 4 to 30 points"),
        ({"labels": ["one connection"]}, "--label one connection: write it like "),
        ({"logarithmic": ["z"]}, "--log z: no axis 'z', choose of: x, y"),
        ({"sizes": ["٣in"]}, "--size ٣in: not a size: give column, page, a width like 3.3in"),
        ({"limits": ["y=٣:5"]}, "--limits y=٣:5: write it like y=0:2.5"),
        ({"limits": ["y=1_0:2_0"]}, "--limits y=1_0:2_0: write it like y=0:2.5"),
        ({"labels": ["one=" + 81 * "x"]}, f"--label one={56 * 'x'}...: give a text of 1 to 80 printable characters"),
        ({"labels": ["one=\udcff"]}, "--label one=\\udcff: give a text of 1 to 80 printable characters"),
        ({"sizes": [5000 * "9" + "in"]}, f"--size {60 * '9'}...: not a size: "),
        ({"limits": ["y=-1e308:1e308"]}, "--limits y=-1e308:1e308: give ends from -1e+12 to 1e+12"),
        ({"limits": ["y=3:1"]}, "--limits y=3:1: write it like y=0:2.5"),
        ({"limits": ["y=nan:"]}, "--limits y=nan:: write it like y=0:2.5"),
        ({"limits": ["y=:"]}, "--limits y=:: write it like y=0:2.5"),
    ],
)
def test_anything_else_is_refused_with_what_there_is(given: dict[str, Any], refused: str) -> None:
    with pytest.raises(InputError) as fault:
        FigureOptions.parse(**given)
    assert str(fault.value).startswith(refused)

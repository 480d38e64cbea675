from typing import Any

import pytest

from wanbed.ground.strict_model import InputError
from wanbed.results.report.charts.figure_options import SIZES, FigureOptions, Size


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

from pathlib import Path

import pytest

from studies.bad_days.day import days
from studies.bad_days.lost_time import Loss
from studies.bad_days.page import BEGIN, END, DayResult, draw, page_text, write_page
from wanbed.results.text import seconds_text, table_line

LATENCY = days(1)[0]
SIMULATED = [
    *(Loss(step, "atlas", (0.1 + step / 5,) * 3, 1.7, 2.0) for step in range(3)),
    *(Loss(step, "varuna", (-0.001,) * 3, 1.8, 1.8) for step in range(3)),
]
RESULT = DayResult(LATENCY, SIMULATED, [Loss(1, "atlas", (0.4, 0.5), 1.75, 2.0)])


def test_the_first_table_says_which_step_breaks_each_plan() -> None:
    assert "| Latency steps up | 40ms | not |" in page_text([RESULT], "p.png")


def test_cells_have_the_median_and_its_interval_and_say_how_they_were_obtained() -> None:
    text = page_text([RESULT], "p.png")
    calm = [f"{seconds_text(1.7)} simulated and {seconds_text(1.75)} measured", f"{seconds_text(1.8)} simulated"]
    assert table_line(["calm", "iteration", *calm]) in text
    assert "| 20ms | simulated | 10% (10% to 10%) | 0% (0% to 0%) |" in text
    assert "| 40ms | measured | 45% | - |" in text


def test_only_what_lies_between_the_marks_is_replaced(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}old\n{END}after\n")
    write_page(page, [RESULT], "p.png")
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    write_page(page, [RESULT], "p.png")
    assert page.read_text() == text


def test_a_page_without_marks_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("no marks")
    with pytest.raises(ValueError, match="lacks"):
        write_page(page, [RESULT], "p.png")
    assert page.read_text() == "no marks"


def test_the_picture_has_a_panel_a_day(tmp_path: Path) -> None:
    draw([RESULT, DayResult(days(1)[3], [], [])], tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")

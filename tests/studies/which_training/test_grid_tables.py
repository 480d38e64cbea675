from pathlib import Path

import pytest
import yaml

from studies.which_training.grid import Grid, SettingPrice
from studies.which_training.grid_tables import example_text, map_text, thousands
from studies.which_training.learning import DATA_PARALLEL, Curve
from studies.which_training.marked_page import BEGIN, END, write_part
from studies.which_training.picture import draw
from studies.which_training.setting import WANS, Method, Wan, candidates
from wanbed.runner.planner.experiment_file import load_experiment

SECONDS = {method: 10.0 + position for position, method in enumerate(Method)}
GRID = Grid.of(
    SettingPrice(method, candidates(method, wan)[0].label, wan, SECONDS[method] if wan.latency_ms < 100 else 98.304, 1)
    for wan in WANS
    for method in Method
)


def test_the_tables_have_every_wan_and_every_method() -> None:
    text = map_text(GRID)
    assert "| 100 ms | one datacenter, Atlas, Varuna" in text
    assert text.count("| 25 ms | one datacenter 98.3 |") == 2
    # The fastest alone (DiLoCo) takes 14 s, one datacenter 10 s and Atlas 11 s.
    assert "| 10 ms | 0.7x (0.8x) |" in text
    for method in Method:
        assert f"| {method} | 100 ms | 10.0 |" in text


def test_the_example_is_a_file_that_a_user_can_run(tmp_path: Path) -> None:
    file = tmp_path / "example.yaml"
    file.write_text(example_text(Wan(50, 1_000_000_000)).removeprefix("```yaml\n").removesuffix("```"))
    (point,) = load_experiment(file, []).points()
    assert yaml.safe_load(file.read_text())["topology"]["wan"]["latency"] == "50ms"
    assert len(point.variants) == 1


@pytest.mark.parametrize(("tokens_per_s", "text"), [(71_934, "71.9"), (1_604, "1.60"), (107_000, "107.0")])
def test_tokens_are_in_thousands(tokens_per_s: float, text: str) -> None:
    assert thousands(tokens_per_s) == text


def test_only_a_named_part_of_the_page_is_replaced(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n" + BEGIN.format(part="map") + "old\n" + END.format(part="map") + "after\n")
    write_part(page, "map", "new\n")
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "\nnew\n" in text
    assert "old" not in text
    with pytest.raises(ValueError, match="lacks"):
        write_part(page, "example", "new")
    assert page.read_text() == text


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    curves = [Curve(DATA_PARALLEL, 0.001, seed, ((5, 4.0), (10, 3.0))) for seed in range(2)]
    draw(GRID, curves, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")

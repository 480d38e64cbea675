import warnings
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

from wanbed.results.report.charts.colours import variant_styles
from wanbed.runner.validation.comparison import VariantComparison
from wanbed.runner.validation.picture import draw_picture


def comparison(variant: str, emulated_s: float, error: float) -> VariantComparison:
    simulated_s = emulated_s * (1 + error)
    return VariantComparison(0, {}, variant, 1, emulated_s, emulated_s, emulated_s, simulated_s)


def drawn(path: Path, comparisons: list[VariantComparison]) -> np.ndarray:
    draw_picture(comparisons, path)
    return matplotlib.image.imread(path)


def pixels_of(image: np.ndarray, colour: str) -> int:
    wanted = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return int((np.abs(image[:, :, :3] - wanted).max(axis=2) < 0.02).sum())


def test_every_variant_is_drawn_in_the_colour_it_has_everywhere(tmp_path: Path) -> None:
    found = drawn(tmp_path / "v.png", [comparison("gpipe", 2.0, 0.01), comparison("atlas", 20.0, -0.02)])
    for style in variant_styles(["gpipe", "atlas"]).values():
        assert pixels_of(found, style.colour) > 50
    assert pixels_of(found, variant_styles(["a", "b", "c"])["c"].colour) == 0


def test_the_same_comparisons_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one.png", "other.png"):
        draw_picture([comparison("gpipe", 2.0, 0.01)], tmp_path / name)
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "other.png").read_bytes()


@pytest.mark.parametrize("variant", ["_hidden", "$\\frac{a}{b}$", "é☃"])
def test_any_name_can_be_drawn(tmp_path: Path, variant: str) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        image = drawn(tmp_path / "v.png", [comparison(variant, 0.001, 0.5)])
    assert pixels_of(image, variant_styles([variant])[variant].colour) > 100

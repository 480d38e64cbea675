import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from wanbed.results.report.charts.drawing.hatching import PITCH_PX, hatched

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

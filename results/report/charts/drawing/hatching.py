"""Draw hatches as plain lines, which print sharply: a browser prints a pattern of SVG as a bitmap."""

import numpy as np
import numpy.typing as npt
from matplotlib.path import Path as Outline

PITCH_PX = 6.0
_DOT_PX = 1.2

Segments = npt.NDArray[np.float64]
"""Segments, shape (n, 2, 2): start and end, each x and y in pixels from a rectangle's upper left corner, y down."""


def hatched(pattern: str, width_px: float, height_px: float) -> Segments:
    r"""Return the lines of one of matplotlib's patterns ``/ \\ x . | -``, clipped to a rectangle."""
    reach = np.arange(PITCH_PX / 2, width_px + height_px, PITCH_PX)
    across, down = reach[reach < width_px], reach[reach < height_px]
    if pattern == "|":
        return _segments(across, 0 * across, across, 0 * across + height_px)
    if pattern == "-":
        return _segments(0 * down, down, 0 * down + width_px, down)
    if pattern == ".":
        x, y = (grid.ravel() for grid in np.meshgrid(across, down))
        return _segments(x, y, np.minimum(x + _DOT_PX, width_px), y)
    # A rising line has x + y = reach; a falling one is its mirror image.
    low, high = np.maximum(0, reach - width_px), np.minimum(height_px, reach)
    rising = _segments(reach - low, low, reach - high, high)
    falling = rising * [1, -1] + [0, height_px]
    if pattern == "/":
        return rising
    return falling if pattern == "\\" else np.concatenate([rising, falling])


def _segments(*ends: npt.NDArray[np.float64]) -> Segments:
    return np.stack(ends, axis=1).reshape(-1, 2, 2)


def outline(segments: Segments) -> Outline:
    """Return segments as one path."""
    codes = np.tile(np.array([Outline.MOVETO, Outline.LINETO], dtype=np.uint8), len(segments))
    return Outline(segments.reshape(-1, 2), codes)

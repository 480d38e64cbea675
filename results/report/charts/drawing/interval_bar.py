"""Draw an interval at a point: a bar with two caps."""

from matplotlib.axes import Axes


def interval_bar(axis: Axes, at: float, interval: tuple[float, float], scale: float) -> None:
    """Draw a vertical bar over ``interval`` at x position ``at``.

    The bar is black and its caps are wider than markers, so that it is visible on any marker.
    """
    low, high = interval
    middle = (low + high) / 2
    axis.errorbar(
        at, middle, yerr=high - middle, fmt="none", ecolor="black", elinewidth=1.2 * scale,
        capsize=7 * scale, capthick=1.2 * scale, clip_on=False, zorder=4,
    )  # fmt: skip

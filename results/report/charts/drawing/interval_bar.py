"""Draw an interval on a point: a bar with two ends."""

from matplotlib.axes import Axes


def interval_bar(axis: Axes, at: float, interval: tuple[float, float], scale: float) -> None:
    """Draw the interval of what stands at ``at``.

    The bar is black and its ends are wider than markers, so that it shows on any of them.
    """
    low, high = interval
    middle = (low + high) / 2
    axis.errorbar(
        at, middle, yerr=high - middle, fmt="none", ecolor="black", elinewidth=1.2 * scale,
        capsize=7 * scale, capthick=1.2 * scale, clip_on=False, zorder=4,
    )  # fmt: skip

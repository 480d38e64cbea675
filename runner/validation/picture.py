"""Draw simulated against emulated iteration times as a PNG."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

from wanbed.ground.files import naming
from wanbed.results.report.charts.colours import variant_styles
from wanbed.runner.validation.comparison import VariantComparison
from wanbed.runner.validation.validation import POINT_LIMIT

_SETTINGS: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 11,
    "text.parse_math": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "figure.constrained_layout.use": True,
}
_BAND, _LINE, _GRID = "#DDDDDD", "#777777", "#E6E6E6"
_STEPS = (1, 2, 5)


def draw_picture(comparisons: Sequence[VariantComparison], path: Path) -> None:
    """Draw every comparison. The same comparisons give the same bytes.

    The left chart shows simulated over emulated times with the identity line, the right one the errors. Both show the
    band of the limit.
    """
    styles = variant_styles(list(dict.fromkeys(each.variant for each in comparisons)))
    with mpl.rc_context(_SETTINGS):
        figure = Figure(figsize=(10, 4.6), facecolor="white")
        FigureCanvasAgg(figure)
        times, errors = figure.subplots(1, 2)
        span = _span(comparisons)
        x = np.geomspace(*span, 100)
        times.fill_between(x, x * (1 - POINT_LIMIT), x * (1 + POINT_LIMIT), color=_BAND, linewidth=0)
        times.plot(x, x, color=_LINE, linewidth=1)
        errors.axhspan(-100 * POINT_LIMIT, 100 * POINT_LIMIT, color=_BAND, linewidth=0)
        errors.axhline(0, color=_LINE, linewidth=1)
        shown = []
        for variant, style in styles.items():
            own = [each for each in comparisons if each.variant == variant]
            emulated_s = [each.emulated_s for each in own]
            look: dict[str, Any] = {"marker": style.marker, "color": style.colour, "linestyle": "none", "markersize": 8}
            shown += times.plot(emulated_s, [each.simulated_s for each in own], **look)
            errors.plot(emulated_s, [100 * each.error for each in own], **look)
        times.set_yscale("log")
        times.set_ylim(*span)
        times.set_ylabel("simulated iteration time (s)")
        errors.set_ylabel(f"error (%), band: {POINT_LIMIT:.0%} either way")
        for axis in (times, errors):
            axis.set_xscale("log")
            axis.set_xlim(*span)
            axis.set_xlabel("emulated iteration time (s)")
            axis.grid(color=_GRID)
        _tick(times, span, both=True)
        _tick(errors, span, both=False)
        times.legend(shown, list(styles), frameon=False, loc="upper left")
        with naming(path):
            figure.savefig(path, format="png", dpi=110, metadata={"Software": None})


def _span(comparisons: Sequence[VariantComparison]) -> tuple[float, float]:
    """Return the range of both axes in seconds: all times, with a margin."""
    times_s = [time_s for each in comparisons for time_s in (each.emulated_s, each.simulated_s)]
    return 0.8 * min(times_s), 1.25 * max(times_s)


def _tick(axis: Axes, span: tuple[float, float], *, both: bool) -> None:
    decades = range(int(np.floor(np.log10(span[0]))), int(np.ceil(np.log10(span[1]))) + 1)
    ticks = [step * 10.0**decade for decade in decades for step in _STEPS if span[0] <= step * 10.0**decade <= span[1]]
    for one in (axis.xaxis, axis.yaxis) if both else (axis.xaxis,):
        one.set_ticks(ticks)
        one.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        one.set_minor_locator(NullLocator())
        one.set_minor_formatter(NullFormatter())

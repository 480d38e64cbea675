"""Set what a user chooses of a picture's axes: logarithmic scales, and limits."""

from collections.abc import Collection, Mapping

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from wanbed.ground.strict_model import InputError

Limits = Mapping[str, tuple[float | None, float | None]]

_ROOM = 1.15
"""By what factor a logarithmic axis reaches beyond the values."""
_FEW_POWERS = 5
"""Below this ratio of highest to lowest value, 1, 2, 5, 10 and so on would be too few ticks."""


def set_scales(figure: Figure, logarithmic: Collection[str], limits: Limits, chart: str) -> None:
    """Make these axes, ``x`` and ``y``, of all panels logarithmic, and limit them.

    Raise InputError if a value that has to be on a logarithmic axis is not above zero. ``chart`` names the picture.
    """
    for axes in figure.axes:
        if not axes.get_visible():
            continue
        for name in sorted(logarithmic):
            _make_logarithmic(axes, name, chart)
        for name, (low, high) in limits.items():
            if name in logarithmic and low is not None and low <= 0:
                raise InputError(f"--limits {name}={low:g}:: a logarithmic axis begins above 0: give more")
            (axes.set_xlim if name == "x" else axes.set_ylim)(low, high)
            for line in axes.lines:
                line.set_clip_on(True)


def _make_logarithmic(axes: Axes, name: str, chart: str) -> None:
    low, high = axes.dataLim.intervalx if name == "x" else axes.dataLim.intervaly
    if low <= 0:
        raise InputError(f"--log {name}: {chart} has values of {low:g} on it, which no logarithmic axis shows")
    axis, set_limits = (axes.xaxis, axes.set_xlim) if name == "x" else (axes.yaxis, axes.set_ylim)
    if name == "x":
        ticks, texts = list(axes.get_xticks()), [text.get_text() for text in axes.get_xticklabels()]
        locator = axis.get_major_locator()
        axes.set_xscale("log")
        if isinstance(locator, FixedLocator):
            axes.set_xticks(ticks, texts)
            axis.set_minor_locator(NullLocator())
        else:
            _plain_numbers(axis, high / low)
    else:
        axes.set_yscale("log")
        _plain_numbers(axis, high / low)
    set_limits(low / _ROOM, high * _ROOM)


def _plain_numbers(axis: Axis, ratio: float) -> None:
    axis.set_major_locator(MaxNLocator(6) if ratio < _FEW_POWERS else LogLocator(10, subs=(1, 2, 5), numticks=8))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())

"""Draw the map: the fastest method at each WAN, the fastest synchronous one, the break-even, and what is learnt."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from studies.which_training.grid import Grid
from studies.which_training.grid_tables import thousands
from studies.which_training.learning import DATA_PARALLEL, Curve
from studies.which_training.setting import Method, Wan

COLOURS = {
    Method.ONE: "#bbbbbb",
    Method.ATLAS: "#4477aa",
    Method.VARUNA: "#66ccee",
    Method.HIERARCHICAL: "#228833",
    Method.DILOCO: "#ccbb44",
    Method.STREAMING: "#ee8866",
    Method.ATOM: "#aa3377",
}
"""Tol's bright colours, which people who see few colours tell apart."""
_DARK = {Method.ATLAS, Method.HIERARCHICAL, Method.ATOM}
"""The methods on whose colour text is white."""


_LEARNER_COLOURS: Mapping[str, str] = {
    DATA_PARALLEL: "#222222",
    **{str(method): colour for method, colour in COLOURS.items()},
}


def draw(grid: Grid, curves: Sequence[Curve], path: Path) -> None:
    """Write the picture as PNG: the maps, and the held-out losses of every seed if there are any."""
    figure = Figure(figsize=(11, 7.5), layout="constrained")
    axes = figure.subplots(2, 2, squeeze=False)
    draw_grid(figure, axes[0, 0], axes[0, 1], axes[1, 0], grid)
    if curves:
        _losses(axes[1, 1], curves)
    else:
        axes[1, 1].set_axis_off()
    figure.savefig(path, dpi=110)


def draw_grid(figure: Figure, every: Axes, synchronous: Axes, even: Axes, grid: Grid) -> None:
    """Draw the two maps and the break-even, and one legend of methods for the figure."""
    shown = _winners(every, grid, lambda _: True)
    every.set_title("Fastest: thousands of tokens a second")
    shown |= _winners(synchronous, grid, lambda method: method.synchronous)
    synchronous.set_title("Fastest of those that learn as data parallelism does")
    _break_even(even, grid)
    even.set_title("Break-even: times the tokens that DiLoCo or ATOM may need")
    figure.legend(
        handles=[Patch(color=COLOURS[method], label=method) for method in Method if method in shown],
        loc="outside lower center", ncols=len(Method), frameon=False,
    )  # fmt: skip


def _losses(axis: Axes, curves: Sequence[Curve]) -> None:
    for curve in curves:
        first = curve is next(each for each in curves if each.learner == curve.learner)
        axis.plot(
            *zip(*curve.losses, strict=True), color=_LEARNER_COLOURS[curve.learner], linewidth=1.2,
            label=str(curve.learner) if first else None,
        )  # fmt: skip
    axis.set_title("Held-out loss of a tiny GPT, a line a seed")
    axis.set_xlabel("iterations")
    axis.set_ylabel("loss (nats)")
    axis.grid(alpha=0.4)
    axis.legend(frameon=False)


def _winners(axis: Axes, grid: Grid, among: Callable[[Method], bool]) -> set[Method]:
    methods = list(Method)
    rows = [[grid.fastest(wan, among) for wan in row] for row in _rows(grid)]
    axis.imshow(
        [[methods.index(price.method) for price in row] for row in rows], vmin=-0.5, vmax=len(methods) - 0.5,
        cmap=ListedColormap([COLOURS[method] for method in methods]), aspect="auto",
    )  # fmt: skip
    for y, row in enumerate(rows):
        for x, price in enumerate(row):
            colour = "white" if price.method in _DARK else "black"
            others = [each.method for each in grid.as_fast(price.wan, among) if each.method is not price.method]
            text = "\n".join((thousands(price.tokens_per_s), *(f"and {other}" for other in others)))
            axis.text(x, y, text, ha="center", va="center", color=colour)
    _wan_axes(axis, grid)
    return {price.method for row in rows for price in row}


def _break_even(axis: Axes, grid: Grid) -> None:
    values = [[grid.break_even(wan, lambda _: True) for wan in row] for row in _rows(grid)]
    most = max(max(row) for row in values)
    axis.imshow(values, norm=LogNorm(1, max(most, 1.1) ** 2), cmap="Oranges", aspect="auto")
    for y, row in enumerate(values):
        for x, value in enumerate(row):
            axis.text(x, y, f"{value:.2g}x", ha="center", va="center")
    _wan_axes(axis, grid)


def _rows(grid: Grid) -> list[list[Wan]]:
    latencies = sorted({wan.latency_ms for wan in grid.wans})
    return [[wan for wan in grid.wans if wan.latency_ms == ms] for ms in latencies]


def _wan_axes(axis: Axes, grid: Grid) -> None:
    rows = _rows(grid)
    axis.set_xticks(range(len(rows[0])), [wan.rate_gbps_text for wan in rows[0]])
    axis.set_yticks(range(len(rows)), [str(row[0].latency_ms) for row in rows])
    axis.set_xlabel("rate between two datacenters (Gbit/s)")
    axis.set_ylabel("one-way latency (ms)")

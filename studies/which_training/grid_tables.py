"""Write the map as tables: the fastest, tokens a second of every method, the break-even, and what was chosen."""

from collections import Counter
from collections.abc import Callable

import yaml

from studies.which_training.grid import AS_FAST, Grid, over_wan
from studies.which_training.setting import Method, Wan, candidates
from wanbed.results.text import list_text, markdown_text, table_line


def map_text(grid: Grid) -> str:
    """Return the tables of the map, each with its heading."""
    return "\n\n".join(
        (
            "### Fastest, in thousands of tokens a second\n\n"
            f"Methods within {AS_FAST - 1:.0%} of the fastest are named too.",
            _by_wan(grid, lambda wan: _fastest_text(grid, wan, lambda _: True)),
            "### Fastest of those that change nothing about what is learnt",
            _by_wan(grid, lambda wan: _fastest_text(grid, wan, lambda method: method.synchronous)),
            "### Break-even\n\n"
            "How many times as many tokens the fastest local-update method may need for a loss, until "
            "it is no faster than\nthe fastest synchronous method (in brackets: with one datacenter left out).",
            _by_wan(grid, lambda wan: _break_even_text(grid, wan)),
            "### Thousands of tokens a second of every method\n\nAt the shortest and the longest latency.",
            _every_method(grid),
            "### What was chosen most often",
            _chosen(grid),
        )
    )


def example_text(wan: Wan) -> str:
    """Return one experiment of the map as a file that a user can run."""
    document = candidates(Method.STREAMING, wan)[-1].document
    written = yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=110)
    return f"```yaml\n{written}```"


def _by_wan(grid: Grid, cell: Callable[[Wan], str]) -> str:
    rates = sorted({wan.rate_bps for wan in grid.wans})
    latencies = sorted({wan.latency_ms for wan in grid.wans})
    lines = [
        table_line(["one-way latency", *(f"{rate / 1e9:g} Gbit/s" for rate in rates)]),
        table_line(["---"] * (len(rates) + 1)),
        *(table_line([f"{ms} ms", *(cell(Wan(ms, rate)) for rate in rates)]) for ms in latencies),
    ]
    return "\n".join(lines)


def _fastest_text(grid: Grid, wan: Wan, among: Callable[[Method], bool]) -> str:
    names = list_text([price.method for price in grid.as_fast(wan, among)])
    return f"{names} {thousands(grid.fastest(wan, among).tokens_per_s)}"


def _break_even_text(grid: Grid, wan: Wan) -> str:
    return f"{grid.break_even(wan, lambda _: True):.1f}x ({grid.break_even(wan, over_wan):.1f}x)"


def _every_method(grid: Grid) -> str:
    rates = sorted({wan.rate_bps for wan in grid.wans})
    lines = [
        table_line(["method", "latency", *(f"{rate / 1e9:g} Gbit/s" for rate in rates)]),
        table_line(["---"] * (len(rates) + 2)),
    ]
    latencies = sorted({wan.latency_ms for wan in grid.wans})
    for method in Method:
        for ms in (latencies[0], latencies[-1]):
            cells = [thousands(grid.price(Wan(ms, rate), method).tokens_per_s) for rate in rates]
            lines.append(table_line([method, f"{ms} ms", *cells]))
    return "\n".join(lines)


def _chosen(grid: Grid) -> str:
    lines = [table_line(["method", "settings tried", "chosen most often", "at"]), table_line(["---"] * 4)]
    for method in Method:
        labels = Counter(grid.price(wan, method).label for wan in grid.wans)
        (label, count) = labels.most_common(1)[0]
        tried = len(candidates(method, grid.wans[0]))
        lines.append(table_line([method, str(tried), markdown_text(label), f"{count} of {len(grid.wans)} WANs"]))
    return "\n".join(lines)


def thousands(tokens_per_s: float) -> str:
    """Return tokens a second in thousands, with three figures as far as they count."""
    value = tokens_per_s / 1000
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"

"""List the trials and the WAN links of an experiment, for ``--dry-run``. Links are as resolved, with what gave them.

Links of sweep points that have the same are listed once. Of all sweep points but the first, only the links that differ
from its links are shown.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from rich.box import SIMPLE
from rich.console import Console

from wanbed.ground.impairments import IMPAIRMENTS, Impairment
from wanbed.ground.units import format_duration, format_fraction, format_rate
from wanbed.results.report.table import Column, Table
from wanbed.results.text import count_text
from wanbed.runner.cli.terminal import print_table, terminal
from wanbed.runner.resolve.experiment import Experiment, SweepPoint
from wanbed.testbed.network.topology_spec import TopologySpec

MAX_ROWS = 60
"""The most links that are printed."""


@dataclass(frozen=True)
class _LinkSet:
    """The links of some sweep points: each as in a manifest, with ``given_by``."""

    links: list[dict[str, Any]]
    points: list[Mapping[str, str]]


def list_trials(experiment: Experiment, as_json: bool) -> None:
    """Print every trial in the order in which it would run, and the links of their networks."""
    points = {point.index: dict(point.values) for point in experiment.points()}
    trials = experiment.trials()
    if as_json:
        listed = [
            {"sweep_point": point, "swept": points[point], "variant": variant, "repeat": repeat}
            for point, variant, repeat in trials
        ]
        print(json.dumps({"run": None, "trials": listed, "links": link_documents(experiment)}, indent=2))
        return
    for point, variant, repeat in trials:
        values = ", ".join(f"{path}={value}" for path, value in points[point].items())
        print(f"{values or experiment.name}: {variant}, repeat {repeat}")
    print_links(experiment, terminal())


def link_documents(experiment: Experiment) -> list[dict[str, Any]]:
    """Return the distinct sets of links, each with the swept values of its sweep points, in plain JSON types."""
    return [{"swept": [dict(values) for values in each.points], "links": each.links} for each in _sets(experiment)]


def print_links(experiment: Experiment, console: Console) -> None:
    """Print a table of the links."""
    sets = _sets(experiment)
    if sets[0].links:
        console.print()
        print_table(_table(sets), console, box=SIMPLE)


def _sets(experiment: Experiment) -> list[_LinkSet]:
    found: list[_LinkSet] = []
    positions: dict[str, int] = {}
    for point in experiment.points():
        links = list(_links(point))
        position = positions.setdefault(repr(links), len(found))
        if position == len(found):
            found.append(_LinkSet(links, []))
        found[position].points.append(point.values)
    return found


def _links(point: SweepPoint) -> Iterator[dict[str, Any]]:
    for link in point.topology.wan:
        for document in link.documents():
            directed = "between" not in document
            ends = (document["from"], document["to"]) if directed else link.between
            yield {**document, "given_by": _given_by(point.spec.topology, ends, directed=directed)}


def _given_by(spec: TopologySpec, ends: tuple[str, str], *, directed: bool) -> list[str]:
    """Return the fields of the file that a link's figures come from, each one above those before it."""
    base = [f"profile {spec.profile}"] if spec.profile is not None else ["wan"] if spec.wan is not None else []
    of_both = [f"links.{at}" for at, link in enumerate(spec.links) if link.between and {*link.between} == {*ends}]
    ways = {ends} if directed else {ends, ends[::-1]}
    of_one = [f"links.{at}" for at, link in enumerate(spec.links) if link.between is None and link.ends in ways]
    return [*base, *of_both, *of_one, *(["scale"] if spec.scale is not None else [])]


def _labels(sets: list[_LinkSet]) -> list[str]:
    """Return what tells each set of links from the others: the swept values that all its sweep points have."""
    telling = [
        path
        for path in sets[0].points[0]
        if all(len({values[path] for values in each.points}) == 1 for each in sets)
        and len({each.points[0][path] for each in sets}) > 1
    ]
    return [", ".join(f"{path.removeprefix('topology.')}={each.points[0][path]}" for path in telling) for each in sets]


_Row = tuple[str, dict[str, Any]]
"""The label of a set of links in its first row, and a link."""


def _table(sets: list[_LinkSet]) -> Table | None:
    first = sets[0].links
    rows = [
        (label if at == 0 else "", link)
        for label, each in zip(_labels(sets), sets, strict=True)
        for at, link in enumerate(link for link in each.links if each is sets[0] or link not in first)
    ]
    left_out = f"and {count_text(len(rows) - MAX_ROWS, 'more row')}: --json has all" if len(rows) > MAX_ROWS else ""
    others = "; after the first sweep point, where they differ from it" if len(sets) > 1 else ""
    columns: list[Column[_Row]] = [
        Column("sweep point", lambda row: row[0], form="text"),
        Column("link", lambda row: _ends(row[1]), form="name"),
        Column("one-way\nlatency", lambda row: format_duration(row[1]["latency_ns"]), form="figure"),
        Column("rate", lambda row: format_rate(row[1]["rate_bps"]), form="figure"),
        Column("node pair\nrate", lambda row: format_rate(row[1]["node_pair_rate_bps"]), form="figure"),
        *(
            Column(each.label, partial(_impairment_text, each), form="figure")
            for each in IMPAIRMENTS
            if any(link[each.field] for _, link in rows)
        ),
        Column("given by", lambda row: ", ".join(row[1]["given_by"]), form="text"),
    ]
    return Table.of("links", f"links{others}", rows[:MAX_ROWS], columns, left_out)


def _ends(link: Mapping[str, Any]) -> str:
    return f"{link['from']} -> {link['to']}" if "from" in link else " <-> ".join(link["between"])


def _impairment_text(impairment: Impairment, row: _Row) -> str:
    value = row[1][impairment.field]
    return format_duration(round(value)) if impairment.is_duration else format_fraction(value)

"""Read the links of a sweep point from a run's manifest, and which of them changed while training ran."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from wanbed.results.text import count_text, list_text

Ends = tuple[str, str]
"""The sending and the receiving datacenter."""

_ENDS = ("between", "from", "to")


def directed_links(entry: Mapping[str, Any]) -> Iterator[tuple[Ends, dict[str, Any]]]:
    """Yield each direction of the links of a sweep point, with its figures, by their names in the manifest."""
    for link in entry.get("wan") or ():
        figures = {name: value for name, value in link.items() if name not in _ENDS}
        if link.get("between") is None:
            yield (str(link["from"]), str(link["to"])), figures
        else:
            one, other = map(str, link["between"])
            yield (one, other), figures
            yield (other, one), figures


@dataclass(frozen=True)
class ConfiguredRates:
    """The configured rates of a link and of one node pair over it, in bit/s; None if unlimited or unknown."""

    link_bps: float | None
    node_pair_bps: float | None


def configured_rates(manifest: Mapping[str, Any], point: int) -> dict[Ends, ConfiguredRates]:
    """Return the configured rates of each directed link at a sweep point, by (source, destination); {} if unknown."""
    return {
        ends: ConfiguredRates(link.get("rate_bps"), link.get("node_pair_rate_bps"))
        for ends, link in directed_links(_entry(manifest, point))
    }


def configured_latencies_ms(manifest: Mapping[str, Any], point: int) -> dict[Ends, float]:
    """Return the first latency of every directed link at a sweep point; a manifest may lack it."""
    links = directed_links(_entry(manifest, point))
    return {ends: float(link["latency_ns"]) / 1e6 for ends, link in links if "latency_ns" in link}


def _entry(manifest: Mapping[str, Any], point: int) -> Mapping[str, Any]:
    """Return what a manifest has of a sweep point, {} if nothing."""
    return next((each for each in manifest.get("sweep_points") or () if each.get("index") == point), {})


MAX_NAMED = 4
"""The most directions of links that a text names."""

COURSE = "course"


@dataclass(frozen=True)
class ChangingLink:
    """One direction of a link that changes: by which source, whether that was drawn, and how often."""

    source: str
    destination: str
    course: str
    synthetic: bool
    changes: int

    @property
    def text(self) -> str:
        """The direction and what changes it, as in ``east to west: 4 changes of drift.csv``."""
        drawn = ", synthetic" if self.synthetic else ""
        return f"{self.source} to {self.destination} ({count_text(self.changes, 'change')}, {self.course}{drawn})"

    def document(self) -> dict[str, Any]:
        """Return the link in plain JSON types."""
        return {
            "from": self.source,
            "to": self.destination,
            "course": self.course,
            "synthetic": self.synthetic,
            "changes": self.changes,
        }


def changing_links(manifest: Mapping[str, Any]) -> list[ChangingLink]:
    """Return every direction of a link that changes in any sweep point, each once for each course."""
    return list(dict.fromkeys(link for entry in manifest.get("sweep_points") or () for link in _found(entry)))


def changing_links_at(manifest: Mapping[str, Any], point: int) -> list[ChangingLink]:
    """Return every direction of a link that changes in one sweep point."""
    points = manifest.get("sweep_points") or ()
    return list(_found(points[point])) if 0 <= point < len(points) else []


def changing_links_text(manifest: Mapping[str, Any]) -> str | None:
    """Return a sentence on the links that change, None if none does."""
    found = changing_links(manifest)
    if not found:
        return None
    texts = [each.text for each in found]
    more = [f"{len(texts) - MAX_NAMED} more"] if len(texts) > MAX_NAMED else []
    drawn = " What is synthetic was drawn, not measured." if any(each.synthetic for each in found) else ""
    return f"Links change while training runs: {list_text([*texts[:MAX_NAMED], *more])}.{drawn}"


def _found(entry: Mapping[str, Any]) -> Iterator[ChangingLink]:
    for (source, destination), figures in directed_links(entry):
        course = figures.get(COURSE)
        if isinstance(course, Mapping):
            yield ChangingLink(
                source,
                destination,
                str(course.get("source", "")),
                bool(course.get("synthetic")),
                int(course.get("changes", 0)),
            )

"""Read the links of a sweep point from a run's manifest: an entry is about both directions of a link, or about one."""

from collections.abc import Iterator, Mapping
from typing import Any

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

"""Read from a run's manifest which configured settings a simulation does not model, and describe them.

``wanbed.runner.runs.not_modelled`` finds them and writes them to the manifest. A setting concerns either links, which
then differ from their configuration for all variants, or single variants.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from wanbed.ground.impairments import IMPAIRMENTS
from wanbed.results.records.documents import SIMULATE
from wanbed.results.text import impairment_text, list_text

MAX_NAMED = 3
"""The most links or variants of one setting that a text names."""
MAX_SETTINGS = 4
"""The most settings that a text names."""


@dataclass(frozen=True)
class NotModelled:
    """One setting that is not modelled: its path in an experiment, its configured value, and its links or variants.

    ``asked`` is the configured value, named like the manifest's key. A link is given as the two datacenters that it
    joins; one in ``directions`` as the sending and the receiving one. Raise ValueError unless there are either links or
    variants.
    """

    field: str
    asked: str
    links: tuple[tuple[str, str], ...] = ()
    variants: tuple[str, ...] = ()
    directions: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if self.of_network == bool(self.variants):
            raise ValueError(f"{self.field} concerns either links or variants, give one of them")

    @property
    def of_network(self) -> bool:
        """Tell whether it concerns links, and so all variants."""
        return bool(self.links or self.directions)

    @property
    def setting(self) -> str:
        """The setting as ``loss 1%``."""
        return f"{self.field.rpartition('.')[2]} {self.asked}"

    @property
    def text_of_one(self) -> str:
        """The setting in a text about one variant: ``congestion bbr``; a setting of links also names them."""
        return self.text if self.of_network else self.setting

    @property
    def text(self) -> str:
        """The setting with its links or variants, at most ``MAX_NAMED``: ``loss 1% (east-west)``."""
        names = ["-".join(ends) for ends in self.links] + [" to ".join(ends) for ends in self.directions]
        names += self.variants
        more = [f"{len(names) - MAX_NAMED} more"] if len(names) > MAX_NAMED else []
        return f"{self.setting} ({list_text([*names[:MAX_NAMED], *more])})"


def simulated_without(manifest: Mapping[str, Any], point: int) -> tuple[NotModelled, ...]:
    """Return what the simulation of a sweep point does not model; nothing for an emulation.

    A manifest of an old version does not record it. Then derive it from the links: no impairment was modelled
    then.
    """
    entry = _entry(manifest, point)
    if "not_modelled" in entry:
        return _read(entry["not_modelled"])
    return _read_off_links(entry) if manifest.get("engine") == SIMULATE else ()


def planned_without(manifest: Mapping[str, Any], point: int) -> tuple[NotModelled, ...]:
    """Return what the planner, which simulates, did not model when it placed the stages of an emulation."""
    return _read(_entry(manifest, point).get("planned_without"))


def of_variant(found: Iterable[NotModelled], variant: str) -> tuple[NotModelled, ...]:
    """Return the settings that concern one variant; settings of links concern all variants."""
    return tuple(each for each in found if each.of_network or variant in each.variants)


def of_links(found: Iterable[NotModelled]) -> tuple[NotModelled, ...]:
    """Return the settings of links."""
    return tuple(each for each in found if each.of_network)


def gathered(found: Iterable[NotModelled]) -> tuple[NotModelled, ...]:
    """Merge settings that several sweep points have: return each once, with all its links or variants."""
    links: dict[tuple[str, str], dict[tuple[str, str], None]] = {}
    directions: dict[tuple[str, str], dict[tuple[str, str], None]] = {}
    variants: dict[tuple[str, str], dict[str, None]] = {}
    for each in found:
        setting = each.field, each.asked
        if each.of_network:
            links.setdefault(setting, {}).update(dict.fromkeys(each.links))
            directions.setdefault(setting, {}).update(dict.fromkeys(each.directions))
        else:
            variants.setdefault(setting, {}).update(dict.fromkeys(each.variants))
    return (
        *(
            NotModelled(*setting, links=tuple(ends), directions=tuple(directions[setting]))
            for setting, ends in links.items()
        ),
        *(NotModelled(*setting, variants=tuple(names)) for setting, names in variants.items()),
    )


def not_modelled_text(found: Iterable[NotModelled]) -> str:
    """Write at most ``MAX_SETTINGS`` settings: ``loss 1% (east-west) and jitter 5ms (east-west)``; empty for none."""
    texts = [each.text for each in gathered(found)]
    more = [f"{len(texts) - MAX_SETTINGS} more"] if len(texts) > MAX_SETTINGS else []
    return list_text([*texts[:MAX_SETTINGS], *more])


def _entry(manifest: Mapping[str, Any], point: int) -> Mapping[str, Any]:
    points = manifest.get("sweep_points") or ()
    # A sweep point's position equals its index, unless somebody has edited the manifest.
    if 0 <= point < len(points) and points[point].get("index") == point:
        return dict(points[point])
    return next((entry for entry in points if entry.get("index") == point), {})


def _read(written: Any) -> tuple[NotModelled, ...]:
    return tuple(
        NotModelled(
            each["field"],
            each["asked"],
            tuple((one, other) for one, other in each.get("links", ())),
            tuple(each.get("variants", ())),
            tuple((one, other) for one, other in each.get("directions", ())),
        )
        for each in written or ()
    )


def _read_off_links(entry: Mapping[str, Any]) -> tuple[NotModelled, ...]:
    found = []
    # Only links alike in both directions: versions that knew others recorded what was not modelled.
    for link in entry.get("wan") or ():
        one, other = link["between"]
        for each in reversed(IMPAIRMENTS):
            if value := link.get(each.field):
                asked = impairment_text(each, each.in_column(value)).replace("\u00a0", "")
                found.append(NotModelled(f"topology.wan.{each.name}", asked, ((one, other),)))
    return gathered(found)

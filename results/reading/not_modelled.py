"""Read from a run's manifest what an experiment asks for and a simulation does not have, and put it in words.

``runner.runs.not_modelled`` finds it and writes it there. A link in it is not as it was asked for; anything else
concerns single variants.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ground.impairments import NOT_SIMULATED
from results.text.impairment_text import impairment_text
from results.text.number_text import list_text

MAX_NAMED = 3
"""Links, or variants, of one setting."""
MAX_SETTINGS = 4

_SIMULATE = "simulate"


@dataclass(frozen=True)
class NotModelled:
    """One setting that is not modelled: its path in an experiment, the value asked for, and its links or variants.

    A link is the two datacenters that it joins. Raises ValueError unless there are either links or variants.
    """

    field: str
    asked: str
    links: tuple[tuple[str, str], ...] = ()
    variants: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.links) == bool(self.variants):
            raise ValueError(f"{self.field} concerns either links or variants, give one of them")

    @property
    def setting(self) -> str:
        """The setting as ``loss 1%``."""
        return f"{self.field.rpartition('.')[2]} {self.asked}"

    @property
    def text_of_one(self) -> str:
        """The setting in a text about one variant: ``congestion bbr``, with the links where links have it."""
        return self.text if self.links else self.setting

    @property
    def text(self) -> str:
        """The setting with its owners, ``loss 1% (east-west)``; of many links or variants the first few."""
        names = ["-".join(ends) for ends in self.links] or list(self.variants)
        more = [f"{len(names) - MAX_NAMED} more"] if len(names) > MAX_NAMED else []
        return f"{self.setting} ({list_text([*names[:MAX_NAMED], *more])})"


def simulated_without(manifest: Mapping[str, Any], point: int) -> tuple[NotModelled, ...]:
    """Return what the simulation of a sweep point does not have; nothing for an emulation.

    For a manifest from before this was recorded, its links decide: none of them had impairments.
    """
    entry = _entry(manifest, point)
    if "not_modelled" in entry:
        return _read(entry["not_modelled"])
    return _read_off_links(entry) if manifest.get("engine") == _SIMULATE else ()


def planned_without(manifest: Mapping[str, Any], point: int) -> tuple[NotModelled, ...]:
    """Return what the planner, which simulates, did not know of when it placed stages of an emulation."""
    return _read(_entry(manifest, point).get("planned_without"))


def of_variant(found: Iterable[NotModelled], variant: str) -> tuple[NotModelled, ...]:
    """Return those that concern one variant, as links concern all."""
    return tuple(each for each in found if each.links or variant in each.variants)


def of_links(found: Iterable[NotModelled]) -> tuple[NotModelled, ...]:
    """Return those for which links are not as they were asked for."""
    return tuple(each for each in found if each.links)


def gathered(found: Iterable[NotModelled]) -> tuple[NotModelled, ...]:
    """Return each setting once, where several sweep points have it, with all its links or variants."""
    links: dict[tuple[str, str], dict[tuple[str, str], None]] = {}
    variants: dict[tuple[str, str], dict[str, None]] = {}
    for each in found:
        setting = each.field, each.asked
        if each.links:
            links.setdefault(setting, {}).update(dict.fromkeys(each.links))
        else:
            variants.setdefault(setting, {}).update(dict.fromkeys(each.variants))
    return (
        *(NotModelled(*setting, links=tuple(ends)) for setting, ends in links.items()),
        *(NotModelled(*setting, variants=tuple(names)) for setting, names in variants.items()),
    )


def not_modelled_text(found: Iterable[NotModelled]) -> str:
    """Write ``loss 1% (east-west) and jitter 5ms (east-west)``; of many settings the first few, empty for none."""
    texts = [each.text for each in gathered(found)]
    more = [f"{len(texts) - MAX_SETTINGS} more"] if len(texts) > MAX_SETTINGS else []
    return list_text([*texts[:MAX_SETTINGS], *more])


def _entry(manifest: Mapping[str, Any], point: int) -> Mapping[str, Any]:
    points = manifest.get("sweep_points") or ()
    # Sweep points stand in their own order, unless somebody has edited the manifest.
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
        )
        for each in written or ()
    )


def _read_off_links(entry: Mapping[str, Any]) -> tuple[NotModelled, ...]:
    found = []
    for link in entry.get("wan") or ():
        one, other = link["between"]
        for each in NOT_SIMULATED:
            if value := link.get(each.field):
                asked = impairment_text(each, each.in_column(value)).replace("\u00a0", "")
                found.append(NotModelled(f"topology.wan.{each.name}", asked, ((one, other),)))
    return gathered(found)

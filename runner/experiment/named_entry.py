"""Name an entry of a list in a path: a datacenter or a variant by its name, a WAN link by its ends.

``datacenters[east]`` and ``variants[atlas]`` are the entry of that name. ``links[east, west]`` is the link in both
directions, ``links[east to west]`` one direction of it. A link without an entry gets one, because a network preset or
``wan`` describes it all the same.
"""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel

from wanbed.ground.shown_text import shown
from wanbed.ground.strict_model import InputError
from wanbed.runner.experiment.variant_spec import VariantSpec
from wanbed.testbed.network.topology_spec import DatacenterSpec, LinkSpec

_TO = " to "
_BY_NAME: tuple[type[BaseModel], ...] = (DatacenterSpec, VariantSpec)


def entry_step(name: str) -> str:
    """Return the step of a path for what stands in brackets."""
    return f"[{name.strip()}]"


def is_entry_step(step: str) -> bool:
    """Return whether a step of a path names an entry."""
    return step.startswith("[") and step.endswith("]")


def can_be_named(kind: Any) -> bool:
    """Return whether the entries of a list of ``kind`` have names, or ends."""
    return kind in (*_BY_NAME, LinkSpec)


def position_of(step: str, entries: Sequence[Any]) -> int | None:
    """Return the position of the entry that ``step`` names, None if there is none."""
    return next((position for position, entry in enumerate(entries) if _is_named(entry, step)), None)


def new_link(step: str) -> dict[str, Any]:
    """Return an entry of a link with its ends alone, the same however they are written.

    Raise InputError if ``step`` names no link.
    """
    source, to, destination = step[1:-1].partition(_TO)
    if to:
        return {"from": source.strip(), "to": destination.strip()}
    ends = sorted(end.strip() for end in step[1:-1].split(","))
    if len(ends) != 2:
        raise InputError(
            f"{shown(step[1:-1])} names no link, write it like [east, west], or [east to west] for one direction"
        )
    return {"between": ends}


def refusal(where: str, step: str, entries: Sequence[Any]) -> str:
    """Return the error for a name that no entry of the list at ``where`` has."""
    names = [str(entry["name"]) for entry in entries if isinstance(entry, Mapping) and "name" in entry]
    near = get_close_matches(step[1:-1], names, n=1)
    remedy = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(names) or 'none'}"
    return f"{where} has no entry {shown(step[1:-1])} here, {remedy}"


def _is_named(entry: Any, step: str) -> bool:
    if not isinstance(entry, Mapping):
        return False
    if "name" in entry:
        return entry_step(str(entry["name"])) == step
    named, between = new_link(step), entry.get("between")
    if isinstance(between, list | tuple):
        return sorted(map(str, between)) == named.get("between")
    return {"from", "to"} <= named.keys() and all(str(entry.get(end)) == named[end] for end in ("from", "to"))

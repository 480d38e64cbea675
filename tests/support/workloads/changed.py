"""Configurations that differ from a given one in a few values, whichever group has them."""

from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Config = TypeVar("Config", bound="DataclassInstance")


def changed(config: Config, **changes: Any) -> Config:
    """Return ``config`` with changed fields: its own, or those of a dataclass that is one of its fields."""
    own = {field.name for field in fields(config)}
    for name in sorted(own - changes.keys()):
        group = getattr(config, name)
        if is_dataclass(group) and not isinstance(group, type):
            inside = {field.name for field in fields(group)} & changes.keys() - own
            if inside:
                changes[name] = replace(group, **{each: changes.pop(each) for each in inside})
    return replace(config, **changes)

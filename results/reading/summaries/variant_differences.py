"""Find the fields in which variants differ: what a speed-up is owed to."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_MOST = 5
"""The most fields that are named of one variant."""
_SHOWN_CHARACTERS = 40


@dataclass(frozen=True)
class VariantFields:
    """The fields that not all variants have alike: their names as ``columns``, and the values of each variant."""

    columns: tuple[str, ...]
    rows: Mapping[str, tuple[str, ...]]


def variant_fields(manifest: Mapping[str, Any], variants: Sequence[str]) -> VariantFields:
    """Return the differing fields of those ``variants`` that the manifest has, their sections' among them."""
    by_name = _fields_of_variants(manifest)
    found = {name: by_name[name] for name in variants if name in by_name}
    names = dict.fromkeys(field for own in found.values() for field in own)
    columns = tuple(field for field in names if len({_text(own.get(field)) for own in found.values()}) > 1)
    return VariantFields(
        columns, {name: tuple(_text(own.get(field)) for field in columns) for name, own in found.items()}
    )


def differences(manifest: Mapping[str, Any], first: str, variant: str) -> tuple[str, ...]:
    """Return ``connections auto against 1`` for each field of ``variant`` that ``first`` has otherwise.

    Return () if the manifest lacks one of the two.
    """
    fields = variant_fields(manifest, (first, variant))
    if not {first, variant} <= fields.rows.keys():
        return ()
    values = zip(fields.columns, fields.rows[variant], fields.rows[first], strict=True)
    named = [f"{name} {own} against {other}" for name, own, other in values]
    return (*named[:_MOST], *([f"{len(named) - _MOST} more"] if len(named) > _MOST else []))


def _fields_of_variants(manifest: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    experiment = manifest.get("experiment")
    document = experiment if isinstance(experiment, Mapping) else manifest
    shared = document.get("training")
    inherited = shared if isinstance(shared, Mapping) else {}
    listed = document.get("variants") or ()
    return {str(each.get("name")): dict(_fields(each, inherited)) for each in listed if isinstance(each, Mapping)}


def _fields(document: Mapping[str, Any], inherited: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a variant by their own names, those of its sections too.

    What its ``training`` leaves out is ``inherited``.
    """
    for name, value in document.items():
        if name == "name":
            continue
        if isinstance(value, Mapping):
            own = {key: inherited.get(key) if each is None else each for key, each in value.items()}
            yield from _fields(own if name == "training" else value, inherited)
        else:
            yield name, value


def _text(value: Any) -> str:
    text = _written(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def _written(value: Any) -> str:
    """Return a value as a file has it; one that is left out as ``default``."""
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    return "default" if value is None else str(value).lower() if isinstance(value, bool) else str(value)

"""Check a run's JSON documents once, when the run is read, so that every reader can rely on them."""

import json
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from wanbed.results.records.documents import Document, Manifest, TrialFacts
from wanbed.results.records.run_store import RunError

MAX_LISTED = 60
"""Characters of a wrong value."""

_DAMAGED = "the file is damaged or edited: restore it, or run again"

_Model = TypeVar("_Model", bound=BaseModel)


def check_manifest(document: Document, source: object) -> None:
    """Raise RunError, ``source: field: fault, remedy`` in one line, unless every command can read the manifest."""
    sweep_points = _checked(Manifest, document, source).sweep_points
    for position, point in enumerate(sweep_points):
        if point.index != position:
            raise RunError(f"{source}: sweep_points.{position}.index: {point.index} is not its position, {_DAMAGED}")


def check_trial_facts(document: Document, source: object) -> None:
    """Raise RunError, ``source: field: fault, remedy`` in one line, unless every command can read a trial's facts."""
    _checked(TrialFacts, document, source)


def _checked(model: type[_Model], document: Document, source: object) -> _Model:
    try:
        return model.model_validate(document)
    except ValidationError as refusal:
        faults = refusal.errors(include_url=False, include_context=False)
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        raise RunError(f"{source}: {_told(faults[0])}{more}, {_DAMAGED}") from None


def _told(fault: ErrorDetails) -> str:
    where = ".".join(" ".join(str(step).split()) for step in fault["loc"])
    if fault["type"] == "missing":
        return f"{where}: this field is missing"
    value = json.dumps(fault["input"], default=str)
    value = value if len(value) <= MAX_LISTED else f"{value[:MAX_LISTED]}..."
    return f"{where}: {fault['msg'][:1].lower()}{fault['msg'][1:]}, not {value}"

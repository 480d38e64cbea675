"""Read a run's manifest and the facts of its finished trials. Both are checked here, once, for all readers."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from wanbed.ground.files import PARTIAL
from wanbed.results.reading.stored_trial import StoredTrial
from wanbed.results.records.documents import SIMULATE, Document, Manifest, TrialFacts
from wanbed.results.records.run_store import MANIFEST, TRIAL_FACTS, RunError, read_json, trial_path
from wanbed.results.records.schema_upgrade import upgraded_document
from wanbed.results.records.trial_id import TrialId

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


def _check_trial_facts(document: Document, source: object) -> None:
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


def read_manifest(run: Path) -> dict[str, Any]:
    """Read a run's manifest. Raises RunError, one line that starts with a path, if there is none or it is damaged."""
    manifest = upgraded_document(read_json(run / MANIFEST))
    check_manifest(manifest, run / MANIFEST)
    # A simulation runs on no clock; earlier versions named the virtual one.
    return {**manifest, "clock": None} if manifest.get("engine") == SIMULATE else manifest


def read_trials(run: Path, manifest: Mapping[str, Any]) -> list[StoredTrial]:
    """Read a run's finished trials: by sweep point, variant as the manifest lists them, and repeat.

    Raises RunError, one line that starts with a path, if a trial.json is damaged, if two claim to be the same trial,
    and if one claims to be another trial than the one whose folder it lies in.
    """
    found: dict[TrialId, StoredTrial] = {}
    for file in sorted(run.glob(f"trials/*/*/repeat-*/{TRIAL_FACTS}")):
        if file.parent.suffix == PARTIAL:
            continue
        facts = upgraded_document(read_json(file))
        _check_trial_facts(facts, file)
        trial = StoredTrial(
            TrialId(facts["sweep_point"], facts["variant"], facts["repeat"]), file.parent, manifest, facts
        )
        same = found.setdefault(trial.id, trial)
        if same is not trial:
            raise RunError(f"{file}: twice {trial.id}, here and in {same.folder}: remove the one that was copied")
    for trial in found.values():
        place = trial_path(run, *trial.id)
        if trial.folder != place:
            raise RunError(
                f"{trial.folder / TRIAL_FACTS}: it says {trial.id}, which belongs in {place}: remove the folder or "
                "put it there"
            )
    order = {variant["name"]: position for position, variant in enumerate(manifest.get("variants", ()))}
    return sorted(
        found.values(),
        key=lambda trial: (trial.point, order.get(trial.variant, len(order)), trial.variant, trial.repeat),
    )

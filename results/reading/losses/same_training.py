"""Check that two runs describe the same training, so that the clock of one may time what the other learnt."""

import json
from collections.abc import Mapping
from typing import Any

from wanbed.results.reading.run import Run

_OF_TRAINING = ("iterations", "precision")
_OF_VARIANT = ("schedule", "options")


def training_fields(run: Run, point: int, variant: str) -> dict[str, Any]:
    """Return what decides what is trained, and in what steps, by the paths of the experiment file.

    Where it trains and over what network, what its text is, and how it is evaluated, are not among them.
    """
    manifest = run.manifest
    experiment = manifest.get("experiment") or {}
    entry: Mapping[str, Any] = next(
        (each for each in manifest.get("sweep_points") or () if each.get("index") == point), {}
    )
    resolved = (entry.get("variants") or {}).get(variant) or {}
    written: Mapping[str, Any] = next(
        (each for each in experiment.get("variants") or () if each.get("name") == variant), {}
    )
    training = experiment.get("training") or {}
    placement = resolved.get("placement") or []
    fields = {
        **{f"training.{name}": training.get(name) for name in _OF_TRAINING},
        "training.pipelines": len(placement),
        "training.stages": len(placement[0]) if placement else 0,
        "training.microbatches": resolved.get("microbatches"),
        "training.virtual_stages": resolved.get("virtual_stages", 1),
        **{f"variants.{name}": written.get(name) for name in _OF_VARIANT},
        **_model_fields(experiment.get("model")),
    }
    # A swept path has the same value in both: points are joined by it.
    swept = entry.get("sweep_point") or {}
    return {name: value for name, value in fields.items() if not _swept(name, swept)}


def _model_fields(model: object) -> dict[str, Any]:
    if isinstance(model, Mapping):
        return {f"model.{name}": value for name, value in model.items()}
    return {"model": model}


def _swept(field: str, paths: Mapping[str, str]) -> bool:
    return any(field == path or field.startswith(f"{path}.") for path in paths)


def first_difference(losses: Mapping[str, Any], clock: Mapping[str, Any]) -> str:
    """Return the first field that differs, as ``training.iterations: 100, the clock's 50``; "" if none does."""
    for field in dict.fromkeys((*losses, *clock)):
        one, other = losses.get(field) or None, clock.get(field) or None
        if one != other:
            return f"{field}: {_text(one)}, and {_text(other)} in the run of the clock"
    return ""


def _text(value: object) -> str:
    return "not set" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

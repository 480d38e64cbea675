"""Read and check a run's manifest and the facts of its finished trials: every reader starts here."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ground.atomic_write import PARTIAL
from results.reading.manifest_check import check_manifest, check_trial_facts
from results.records.run_store import MANIFEST, TRIAL_FACTS, RunError, read_json, trial_path
from results.records.schema_upgrade import upgraded_document


@dataclass(frozen=True)
class FoundTrial:
    """A finished trial's folder, its identity, and the contents of its trial.json."""

    folder: Path
    point: int
    variant: str
    repeat: int
    facts: Mapping[str, Any]

    @property
    def key(self) -> tuple[int, str, int]:
        """Sweep point, variant and repeat, which identify every row of the trial's tables."""
        return self.point, self.variant, self.repeat


def read_manifest(run: Path) -> dict[str, Any]:
    """Read a run's manifest. Raises RunError, one line that starts with a path, if there is none or it is damaged."""
    manifest = upgraded_document(read_json(run / MANIFEST))
    check_manifest(manifest, run / MANIFEST)
    return manifest


def read_trials(run: Path, manifest: Mapping[str, Any]) -> list[FoundTrial]:
    """Read a run's finished trials: by sweep point, variant as the manifest lists them, and repeat.

    Raises RunError, one line that starts with a path, if a trial.json is damaged, if two claim to be the same trial,
    and if one claims to be another trial than the one whose folder it lies in.
    """
    found: dict[tuple[int, str, int], FoundTrial] = {}
    for file in sorted(run.glob(f"trials/*/*/repeat-*/{TRIAL_FACTS}")):
        if file.parent.suffix == PARTIAL:
            continue
        facts = upgraded_document(read_json(file))
        check_trial_facts(facts, file)
        trial = FoundTrial(file.parent, facts["sweep_point"], facts["variant"], facts["repeat"], facts)
        same = found.setdefault(trial.key, trial)
        if same is not trial:
            raise RunError(f"{file}: twice {_text(trial)}, here and in {same.folder}: remove the one that was copied")
    for trial in found.values():
        place = trial_path(run, *trial.key)
        if trial.folder != place:
            raise RunError(
                f"{trial.folder / TRIAL_FACTS}: it says {_text(trial)}, which belongs in {place}: remove the folder or "
                "put it there"
            )
    order = {variant["name"]: position for position, variant in enumerate(manifest.get("variants", ()))}
    return sorted(
        found.values(),
        key=lambda trial: (trial.point, order.get(trial.variant, len(order)), trial.variant, trial.repeat),
    )


def _text(trial: FoundTrial) -> str:
    return f"sweep point {trial.point}, {' '.join(trial.variant.split())}, repeat {trial.repeat}"

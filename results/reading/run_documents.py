"""Read and check a run's manifest and the facts of its finished trials: every reader starts here."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wanbed.ground.files.atomic_write import PARTIAL
from wanbed.results.reading.manifest_check import check_manifest, check_trial_facts
from wanbed.results.reading.stored_trial import StoredTrial
from wanbed.results.records.documents import SIMULATE
from wanbed.results.records.run_store import MANIFEST, TRIAL_FACTS, RunError, read_json, trial_path
from wanbed.results.records.schema_upgrade import upgraded_document
from wanbed.results.records.trial_id import TrialId


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
        check_trial_facts(facts, file)
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

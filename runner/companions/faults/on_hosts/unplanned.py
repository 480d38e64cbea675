"""Record trials that have failed although nothing was to fail, where the other trials of the run go on."""

from collections.abc import Mapping
from typing import Any

from wanbed.results.reading.trial_faults import FAILED
from wanbed.results.records.run_store import TrialRecord
from wanbed.runner.emulation.running_trial import TrialSpec


def ended_unplanned(facts: Mapping[str, Any]) -> bool:
    """Return whether a trial's record says that it failed without a planned fault: its network may be broken."""
    faults = facts.get("faults")
    return faults is not None and faults["outcome"] == FAILED and not faults["planned"]


def failed_record(trial: TrialSpec, reason: str) -> TrialRecord:
    """Return the record of a trial of which nothing is left but why it failed."""
    training = trial.point.spec.training
    return TrialRecord(
        trial.id,
        (),
        facts={
            "warmup_iterations": training.warmup,
            "tokens_per_iteration": trial.point.tokens_of(trial.variant),
            "dilation": trial.dilation,
            "faults": {
                "outcome": FAILED,
                "planned": False,
                "reason": reason,
                "recovery": "none",
                "iterations_planned": training.iterations,
                "disturbances": [],
            },
        },
    )

"""Find out whether the optimizer steps of a variant wait for all stages, and refuse it where they cannot."""

from wanbed.ground.strict_model import InputError
from wanbed.runner.experiment.compute_spec import TRACE_SCHEDULE
from wanbed.runner.resolve.written_variant import WrittenVariant
from wanbed.workloads.baselines.baseline_config import BASELINE_SCHEDULES
from wanbed.workloads.synchronization.synchronization import ATOM, DILOCO


def waits_for_all(written: WrittenVariant) -> bool:
    """Return whether optimizer steps wait for the gradients of all stages. Raise InputError where they cannot."""
    own = written.variant.training.optimizer_waits
    if (own or written.spec.training.optimizer_waits) == "own":
        return False
    reason = _reason(written)
    if reason is not None:
        field = "training.optimizer_waits" if own is None else f"{written.field}.training.optimizer_waits"
        remedy = f"give {written.field}.training.optimizer_waits: own" if own is None else "give own"
        raise InputError(f"{field}: all stages, but {reason}: {remedy}")
    return True


def _reason(written: WrittenVariant) -> str | None:
    """Return why the optimizer steps of a variant do not wait for all stages, None if they can."""
    variant = written.variant
    if variant.program is not None:
        return f"{variant.name} runs a program, which steps its optimizer itself"
    if variant.schedule == TRACE_SCHEDULE:
        return f"{variant.name} replays a trace, which has its own order of optimizer steps"
    if variant.schedule in {DILOCO, ATOM}:
        return f"the replicas of {variant.schedule} train alone, and exchange no gradient norm"
    if variant.schedule in BASELINE_SCHEDULES:
        return f"{variant.schedule} is torch's own, which steps its optimizer itself"
    return None

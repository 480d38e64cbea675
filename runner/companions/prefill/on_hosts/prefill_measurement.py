"""Measure on the testbed, before a trial, the prefill profile that a service plans with if torch computes."""

import json
from functools import partial
from pathlib import Path

from wanbed.runner.runs.faults import TrialError
from wanbed.testbed.hosts.process_group import ProcessGroup
from wanbed.testbed.running_testbed import RunningTestbed
from wanbed.workloads.inference.inference_work import InferenceWork
from wanbed.workloads.prefill.prefill_profile import PrefillProfile
from wanbed.workloads.prefill.profile_fit import TimedChunk, fit_chunks
from wanbed.workloads.prefill.service_config import ServiceConfig
from wanbed.workloads.serving.layer_measurement import MeasurementConfig

PROGRAM = "wanbed.workloads.serving.layer_measurement"
_PATIENCE_S = 300.0
"""Seconds for torch to load, for the weights of some layers to be made, and for prompts of a few chunks."""

SOURCE = "measured before the trial, on one of its hosts with nothing beside it"


def measured_profile(
    testbed: RunningTestbed, service: ServiceConfig, work: InferenceWork, folder: Path, parent_pid: int
) -> PrefillProfile:
    """Measure the prefill profile of the service's model on the host of its first GPU, which has the most layers.

    Nothing else runs at the same time; beside training and other GPUs of the machine a layer may take longer.
    ``folder`` receives the process's configuration and its result. Raise TrialError, one line, if there is no result,
    or if no profile fits it.
    """
    host = service.datacenters[0].gpus[0].host
    # Named like the configuration: so it comes back from another machine.
    result = folder / "layer-times.measured"
    layers = max(service.model.stage_layers(service.depth))
    config = MeasurementConfig(work, layers, service.settings.chunk_tokens, str(result), parent_pid)
    path = folder / "layer-times.json"
    config.write(path)
    with ProcessGroup() as group:
        group.start(partial(testbed.start_module, host, PROGRAM, [str(path)]), folder / "layer-times.words")
        if not group.wait_for_all(_PATIENCE_S):
            raise TrialError(
                f"prefill.profile: a layer of {service.model.name} was not measured within {_PATIENCE_S:.0f} s on "
                f"{host}: give a smaller model, or the name of a profile"
            )
        (status,), stderr_tail = group.statuses(), group.stderr_tail(0)
    if status != 0:
        raise TrialError(
            f"prefill.profile: measuring a layer of {service.model.name} on {host} ended with status {status}"
            + (f": {stderr_tail}" if stderr_tail else "")
        )
    chunks = [TimedChunk(*chunk) for chunk in json.loads(result.read_text(encoding="utf-8"))]
    try:
        return fit_chunks(chunks, 1, source=SOURCE)
    except ValueError as fault:
        raise TrialError(f"prefill.profile: what was measured on {host} makes no profile: {fault}") from None

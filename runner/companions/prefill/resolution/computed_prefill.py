"""Check prefill that torch computes: the experiment's options, and the memory of the machine."""

import os
from collections.abc import Iterable

from wanbed.ground.strict_model import InputError
from wanbed.runner.experiment.experiment_spec import ExperimentSpec
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.trainings.torch_baseline.resolution import BaselineVariant
from wanbed.workloads.inference.inference_model import InferenceModel
from wanbed.workloads.inference.inference_work import InferenceWork
from wanbed.workloads.prefill.prefill_settings import FillPolicy
from wanbed.workloads.prefill.service_config import ServiceConfig


def inference_work(spec: ExperimentSpec, model: InferenceModel) -> InferenceWork | None:
    """Return the inference work that torch computes, None if prefill is replayed or simulated."""
    if spec.engine == "simulate" or not spec.compute.backend.computes_prefill:
        return None
    compute = spec.compute
    return InferenceWork(
        model, spec.seed, compute.device or "auto", compute.threads or 1, deterministic=bool(compute.deterministic)
    )


def check_computed_prefill(spec: ExperimentSpec, variants: Iterable[ResolvedVariant]) -> None:
    """Raise InputError for prefill that torch cannot compute in bubbles.

    The tensors that torch makes have a fixed size, so ``kv`` and ``activation`` cannot be configured. The ranks of
    torch's baseline schedules are not this project's, so their bubbles cannot be filled.
    """
    for position, variant in enumerate(variants):
        service = variant.service
        if service is None or service.inference is None:
            continue
        for name in ("kv", "activation"):
            if getattr(spec.prefill, name) is not None:
                raise InputError(
                    f"prefill.{name}: where torch computes, what it has made is sent: leave {name} out, or "
                    "give compute: {kind: replay}"
                )
        if isinstance(variant, BaselineVariant) and service.settings.policy is not FillPolicy.NONE:
            raise InputError(
                f"variants.{position}.prefill: {variant.schedule} is run by torch itself, whose bubbles are "
                "not filled: give the variant prefill: none, or another schedule"
            )


def check_memory_for_weights(services: Iterable[ServiceConfig], machine_bytes: int | None = None) -> None:
    """Raise InputError if the weights that torch makes on the CPU do not fit into the memory of this machine.

    Each group of GPUs and each decode host holds one copy of the model, all in processes of this machine.
    ``machine_bytes`` defaults to this machine's memory.
    """
    if machine_bytes is None:
        machine_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for service in services:
        work = service.inference
        if work is None:
            continue
        model, copies = service.model, 0
        for datacenter in service.datacenters:
            trained = service.settings.policy is not FillPolicy.NONE
            copies += sum(group.pooled or trained for group in datacenter.groups) + len(datacenter.decode_hosts)
        weight_bytes = copies * model.weight_bytes(model.layers, embedding=True, head=True)
        if weight_bytes > machine_bytes:
            raise InputError(
                f"prefill.model: {model.name} {copies} times, in each group of GPUs and at each host that decodes, "
                f"takes {weight_bytes / 2**30:.1f} of this machine's {machine_bytes / 2**30:.1f} GiB: give a smaller "
                "model, or compute: {kind: replay}"
            )

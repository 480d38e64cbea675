"""Make the GPU of a plan."""

from workloads.prefill.bubbles.bubble_filler import BubbleFiller
from workloads.prefill.bubbles.bubble_forecast import BubbleForecast
from workloads.prefill.prefill_settings import FillPolicy
from workloads.serving.gpu.shared_gpu import SharedGpu
from workloads.serving.serving_configs import GpuServingConfig


def serving_gpu(plan: GpuServingConfig) -> SharedGpu:
    """Return the GPU of ``plan``. One of the pool predicts nothing, and does each piece as soon as it can.

    Where torch computes, the weights are made here. Raises ValueError for a device that is not there.
    """
    policy = FillPolicy.GREEDY if plan.pooled else plan.settings.policy
    filler = BubbleFiller(BubbleForecast(plan.settings, plan.training), plan.profile, policy)
    if plan.inference is None:
        return SharedGpu(plan.gpu, filler)
    # What replays starts in tens of milliseconds because it never loads torch.
    from workloads.serving.gpu.computed_gpu import ComputedGpu  # noqa: PLC0415
    from workloads.serving.gpu.prefill_compute import PrefillCompute  # noqa: PLC0415

    return ComputedGpu(plan.gpu, filler, PrefillCompute(plan.inference, plan.layers))

"""Create the GPU that a configuration describes."""

from wanbed.workloads.prefill.bubbles.bubble_filler import BubbleFiller
from wanbed.workloads.prefill.bubbles.bubble_forecast import BubbleForecast
from wanbed.workloads.prefill.prefill_settings import FillPolicy
from wanbed.workloads.serving.gpu.shared_gpu import SharedGpu
from wanbed.workloads.serving.serving_configs import GpuServingConfig


def serving_gpu(config: GpuServingConfig) -> SharedGpu:
    """Return the GPU of ``config``. A GPU of the pool predicts nothing and runs each piece as soon as it can.

    Where torch computes, the weights are created here. Raises ValueError if the device is not available.
    """
    policy = FillPolicy.GREEDY if config.pooled else config.settings.policy
    filler = BubbleFiller(BubbleForecast(config.settings, config.training), config.profile, policy)
    if config.inference is None:
        return SharedGpu(config.gpu, filler)
    # Import torch only if it is needed: a process that replays starts in tens of milliseconds.
    from wanbed.workloads.serving.gpu.computed_gpu import ComputedGpu  # noqa: PLC0415
    from wanbed.workloads.serving.gpu.prefill_compute import PrefillCompute  # noqa: PLC0415

    prefill = PrefillCompute(config.inference, config.layers, config.settings.chunk_tokens)
    return ComputedGpu(config.gpu, filler, prefill)

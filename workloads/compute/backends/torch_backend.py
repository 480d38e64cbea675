"""Training by torch. Only ``create``, in a rank, imports torch."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING

from wanbed.workloads.collective.collective_config import CollectiveConfig
from wanbed.workloads.compute.backends.backend import (
    Computation,
    ComputeBackend,
    ComputeConfig,
    RankContext,
    SwappedGroups,
    TrainedModel,
)
from wanbed.workloads.compute.torch_work import TorchWork
from wanbed.workloads.gpt.gpt_config import bytes_per_element
from wanbed.workloads.schedules.action import ActionKind

if TYPE_CHECKING:
    from wanbed.workloads.collective.device_all_reduce import DeviceAllReduce, Report
    from wanbed.workloads.compute.torch_compute import TorchCompute

TORCH_RENDEZVOUS_NS = 60_000_000_000
"""Long, because importing torch takes seconds of a core, and all ranks may share few cores."""


class TorchBackend(ComputeBackend):
    """Trains the model's stage on the CPU or on a GPU."""

    title = "torch"
    real_time = True
    planning_profile = "cpu"
    trains = True
    saves_state = True
    on_device = True
    sums_on_device = True
    completes_buckets = True
    sums_flushes = True
    synchronizes = True
    encodes = True
    swaps = True
    torch_schedules = True
    virtual_stages = True
    computes_prefill = True
    rendezvous_timeout_ns = TORCH_RENDEZVOUS_NS

    def missing(self) -> str | None:
        """Return how to install torch, None where it is installed."""
        if find_spec("torch") is None:
            return "torch is not installed: ./setup.sh test, or pip install 'wanbed[torch]'"
        return None

    def create(self, config: ComputeConfig, context: RankContext) -> Computation:
        """Build the stage and its optimizer. Raise ValueError or OSError as ``TorchWork`` and ``TorchCompute`` do."""
        from wanbed.workloads.compute.stage_files import model_files  # noqa: PLC0415
        from wanbed.workloads.compute.swapped_compute import SwappedCompute  # noqa: PLC0415
        from wanbed.workloads.compute.torch_compute import TorchCompute  # noqa: PLC0415

        work = torch_work(config, context.actions)
        element_bytes = bytes_per_element(work.learning.precision)
        if work.device.swapping is not None:
            swapped = SwappedCompute(work, work.device.swapping, context.pool.give_back)
            return Computation(
                swapped,
                element_bytes=element_bytes,
                model=TrainedModel(
                    swapped,
                    model_files(swapped.parameters, swapped.named_gradients),
                    swapped.parameters.squares,
                    SwappedGroups(swapped.groups, swapped.swapping_record),
                ),
                synchronized=swapped.synchronized,
            )
        compute = TorchCompute(work, context.pool.give_back, context.gpu)
        context.pool.prefer(compute.receive_buffer)
        files = model_files(compute.parameters, compute.named_gradients)
        return Computation(
            compute,
            element_bytes=element_bytes,
            model=TrainedModel(compute, files, compute.parameters.squares),
            all_reduce=None if config.collective is None else _all_reduce(config.collective, compute),
            synchronized=compute.synchronized,
        )


def _all_reduce(config: CollectiveConfig, compute: "TorchCompute") -> "Callable[[Report], DeviceAllReduce]":
    """Return a function that joins the collective. Raise ValueError for one that this torch does not have."""
    from wanbed.workloads.collective.device_all_reduce import DeviceAllReduce, check_backend  # noqa: PLC0415

    check_backend(config.backend)
    return lambda report: DeviceAllReduce(config, compute.device_gradients, compute.record().device, report)


def torch_work(config: ComputeConfig, actions: tuple[ActionKind, ...]) -> TorchWork:
    """Return the torch configuration of a stage whose schedule has ``actions``. Raise ValueError naming the field."""
    if config.learning is None:
        raise ValueError("learning: None, and torch needs a model to train")
    return TorchWork(
        config.computed,
        config.learning,
        config.device,
        recompute=ActionKind.RECOMPUTE in actions or config.device.swapping is not None,
        split_backward=ActionKind.BACKWARD_INPUT in actions,
        synchronization=config.synchronization,
        encoded=config.encoded,
    )

"""Run a rank of a torch baseline, from the rendezvous to the last gradients.

The rank trains a stage of a pipeline, or a replica of the whole model by torch's DistributedDataParallel.
"""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from wanbed.results.records.span_log import DeviceRecord, RankPlace, SpanLog
from wanbed.workloads.baselines.baseline_config import TORCH_DDP, BaselineConfig
from wanbed.workloads.baselines.compute_spans import ComputeSpans, create_marks, device_record
from wanbed.workloads.baselines.pipeline_baseline import PipelineBaseline
from wanbed.workloads.baselines.rendezvous import PeerWatch, connection_fault, join_groups, rendezvous
from wanbed.workloads.compute.device.torch_device import TorchDevice, choose_kernels, create_device
from wanbed.workloads.compute.flat_parameters import FlatParameters
from wanbed.workloads.compute.stage_files import save_weights
from wanbed.workloads.gpt.gpt_stage import DTYPES, build_stage, language_loss
from wanbed.workloads.gpt.tokens import TokenSource
from wanbed.workloads.kept_files import Snapshots


class DataParallelBaseline:
    """Trains one replica. Gradients accumulate over the microbatches; the last backward all-reduces them in buckets.

    DistributedDataParallel divides gradients by the number of replicas, and each microbatch's loss is divided by the
    number of microbatches, so that gradients are those of the mean over the global batch. Replicas are built with equal
    weights, so no weights are broadcast.
    """

    def __init__(
        self, rank_config: BaselineConfig, dtype: torch.dtype, spans: ComputeSpans, device: TorchDevice
    ) -> None:
        self._rank_config = rank_config
        self._spans = spans
        self._device = device
        self._tokens = TokenSource(rank_config.config, rank_config.seed, rank_config.text, rank_config.held_out)
        module = build_stage(rank_config.config, 0, 1, rank_config.seed, dtype).to(device.device)
        self.parameters = FlatParameters(module, rank_config.learning_rate)
        self._replica = DistributedDataParallel(module, init_sync=False)
        for parameter in module.parameters():
            # The last backward returns when all buckets have been reduced, which is not computation.
            parameter.register_post_accumulate_grad_hook(lambda _: spans.stop())  # type: ignore[no-untyped-call]

    def run_iteration(self, iteration: int) -> float:
        """Train one iteration. Return this replica's mean loss."""
        rank_config = self._rank_config
        self._spans.begin(iteration)
        self.parameters.gradients.zero_()
        mean = 0.0
        for number in range(rank_config.microbatches):
            batch = self._tokens.batch(iteration, rank_config.pipeline, number)
            tokens, following = (part.to(self._device.device) for part in batch)
            last = number == rank_config.microbatches - 1
            with nullcontext() if last else self._replica.no_sync():
                with self._spans.measured("forward", number):
                    loss = language_loss(self._replica(tokens), following) / rank_config.microbatches
                with self._spans.measured("backward", number):
                    loss.backward()  # type: ignore[no-untyped-call]
            mean += loss.item()
        with self._spans.measured("optimizer"):
            self.parameters.update()
        return mean

    def device_record(self) -> DeviceRecord:
        """Return the device. Gloo stages gradients by itself, uncounted."""
        return device_record(self._device, self._spans)


def train(rank_config: BaselineConfig, lost: Callable[[str], None]) -> None:
    """Run all iterations, write the gradients if ``rank_config`` names a file, and complete the span log.

    ``lost`` is called with one line, from another thread, if a rank stops its heartbeats. Raise ValueError, OSError or
    RuntimeError; for a connection that Gloo lost the message names the peer. Spans of earlier iterations are in the
    log even then.
    """
    torch.set_num_threads(rank_config.threads)
    choose_kernels(deterministic=rank_config.deterministic)
    store, members = rendezvous(rank_config, lost)
    watch = PeerWatch(rank_config, members, lost)
    watch.start()
    groups = join_groups(rank_config, store)
    header = RankPlace(
        rank_config.rank,
        rank_config.host,
        rank_config.datacenter,
        rank_config.gpu,
        rank_config.pipeline,
        rank_config.stage,
    )
    log = SpanLog(Path(rank_config.span_log), header)
    device = create_device(rank_config.device)
    spans = ComputeSpans(log, rank_config.epoch_ns, create_marks(device.runtime))
    dtype = DTYPES[rank_config.precision]
    baseline: DataParallelBaseline | PipelineBaseline
    if rank_config.schedule == TORCH_DDP:
        baseline = DataParallelBaseline(rank_config, dtype, spans, device)
    else:
        baseline = PipelineBaseline(rank_config, dtype, groups, spans, device)
    snapshots: Snapshots | None = None
    if rank_config.snapshots is not None:
        snapshots = Snapshots(
            rank_config.snapshots,
            rank_config.pipeline,
            rank_config.stage,
            lambda path: save_weights(path, baseline.parameters),
        )
    try:
        for iteration in range(rank_config.iterations):
            spans.flush(baseline.run_iteration(iteration))
            if snapshots is not None:
                snapshots.finished(iteration)
        dist.barrier()
    except RuntimeError as fault:
        raise RuntimeError(connection_fault(str(fault), members)) from fault
    watch.shutdown()
    dist.destroy_process_group()
    if rank_config.gradients is not None:
        _write_gradients(Path(rank_config.gradients), baseline.parameters)
    log.record_device(baseline.device_record())
    log.complete()


def _write_gradients(path: Path, parameters: FlatParameters) -> None:
    """Write each parameter's gradient, in fp32, under its name in the whole model."""
    arrays: dict[str, Any] = {name: gradient.float().cpu().numpy() for name, gradient in parameters.named_gradients()}
    np.savez(path, **arrays)

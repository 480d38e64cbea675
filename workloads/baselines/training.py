"""Run a rank of a torch baseline, from the rendezvous to the last gradients.

The rank trains a stage of a pipeline, or a replica of the whole model by torch's DistributedDataParallel.
"""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from wanbed.results.records.span_log import DeviceRecord, SpanLog
from wanbed.workloads.baselines.baseline_config import TORCH_DDP, BaselineConfig
from wanbed.workloads.baselines.compute_spans import ComputeSpans, create_marks, device_record
from wanbed.workloads.baselines.pipeline_baseline import PipelineBaseline
from wanbed.workloads.baselines.rendezvous import PeerWatch, connection_fault, join_groups, rendezvous
from wanbed.workloads.compute.device.torch_device import TorchDevice, configured_device
from wanbed.workloads.compute.flat_parameters import FlatParameters
from wanbed.workloads.compute.stage_files import model_files
from wanbed.workloads.gpt.gpt_stage import DTYPES, build_stage, language_loss
from wanbed.workloads.gpt.tokens import TokenSource
from wanbed.workloads.kept_files import KeptFiles


class DataParallelBaseline:
    """Trains one replica. Gradients accumulate over the microbatches; the last backward all-reduces them in buckets.

    DistributedDataParallel divides gradients by the number of replicas, and each microbatch's loss is divided by the
    number of microbatches, so that gradients are those of the mean over the global batch. Replicas are built with equal
    weights, so no weights are broadcast.
    """

    def __init__(self, rank_config: BaselineConfig, spans: ComputeSpans, device: TorchDevice) -> None:
        learning = rank_config.learning
        self._pipeline = rank_config.place.pipeline
        self._microbatches = rank_config.shape.microbatches
        self._spans = spans
        self._device = device
        self._tokens = TokenSource(learning.model, learning.seed, learning.text, learning.held_out)
        module = build_stage(learning.model, 0, 1, learning.seed, DTYPES[learning.precision]).to(device.device)
        self.parameters = FlatParameters(module, learning.learning_rate)
        self._replica = DistributedDataParallel(module, init_sync=False)
        for parameter in module.parameters():
            # The last backward returns when all buckets have been reduced, which is not computation.
            parameter.register_post_accumulate_grad_hook(lambda _: spans.stop())  # type: ignore[no-untyped-call]

    def run_iteration(self, iteration: int) -> float:
        """Train one iteration. Return this replica's mean loss."""
        self._spans.begin(iteration)
        self.parameters.gradients.zero_()
        mean = 0.0
        for number in range(self._microbatches):
            batch = self._tokens.batch(iteration, self._pipeline, number)
            tokens, following = (part.to(self._device.device) for part in batch)
            last = number == self._microbatches - 1
            with nullcontext() if last else self._replica.no_sync():
                with self._spans.measured("forward", number):
                    loss = language_loss(self._replica(tokens), following) / self._microbatches
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
    """Run all iterations, keep the files that ``rank_config`` names, and complete the span log.

    ``lost`` is called with one line, from another thread, if a rank stops its heartbeats. Raise ValueError, OSError or
    RuntimeError; for a connection that Gloo lost the message names the peer. Spans of earlier iterations are in the
    log even then.
    """
    place = rank_config.place
    store, members = rendezvous(rank_config, lost)
    watch = PeerWatch(place.rank, rank_config.gloo, members, lost)
    watch.start()
    groups = join_groups(rank_config, store)
    log = SpanLog(Path(rank_config.span_log), place)
    device = configured_device(rank_config.device)
    spans = ComputeSpans(log, rank_config.epoch_ns, create_marks(device.runtime))
    baseline: DataParallelBaseline | PipelineBaseline
    if rank_config.shape.schedule == TORCH_DDP:
        baseline = DataParallelBaseline(rank_config, spans, device)
    else:
        baseline = PipelineBaseline(rank_config, groups, spans, device)
    kept = KeptFiles(
        rank_config.kept,
        model_files(baseline.parameters, baseline.parameters.gradient_arrays),
        pipeline=place.pipeline,
        stage=place.stage,
        iterations=rank_config.iterations,
    )
    try:
        for iteration in range(rank_config.iterations):
            spans.flush(baseline.run_iteration(iteration))
            kept.summed(iteration)
            kept.finished(iteration)
        dist.barrier()
    except RuntimeError as fault:
        raise RuntimeError(connection_fault(str(fault), members)) from fault
    watch.shutdown()
    dist.destroy_process_group()
    log.record_device(baseline.device_record())
    log.complete()

"""One replica of the whole model, trained by torch's DistributedDataParallel."""

from contextlib import nullcontext

import torch
from torch.nn.parallel import DistributedDataParallel

from wanbed.results.records.span_log import DeviceRecord
from wanbed.workloads.baselines.baseline_config import BaselineConfig
from wanbed.workloads.baselines.compute_spans import ComputeSpans, device_record
from wanbed.workloads.compute.device.torch_device import TorchDevice
from wanbed.workloads.compute.flat_parameters import FlatParameters
from wanbed.workloads.model.gpt_stage import build_stage, language_loss
from wanbed.workloads.model.tokens import TokenSource


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

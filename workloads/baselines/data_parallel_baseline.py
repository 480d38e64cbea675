"""One whole replica, trained by torch's DistributedDataParallel."""

import time
from contextlib import nullcontext

import torch
from torch.nn.parallel import DistributedDataParallel

from workloads.baselines.baseline_config import BaselineConfig
from workloads.baselines.compute_spans import ComputeSpans
from workloads.compute.flat_parameters import FlatParameters
from workloads.model.gpt_stage import build_stage, language_loss
from workloads.model.tokens import TokenSource


class DataParallelBaseline:
    """Trains one replica: gradients add up over the microbatches, and the last backward all-reduces them in buckets.

    DistributedDataParallel divides by the number of replicas, and each microbatch's loss by the number of microbatches,
    so that gradients are those of the mean over the global batch. Replicas are built alike and nothing is broadcast
    first.
    """

    def __init__(self, plan: BaselineConfig, dtype: torch.dtype, spans: ComputeSpans) -> None:
        self._plan = plan
        self._spans = spans
        self._tokens = TokenSource(plan.config, plan.seed, plan.text)
        module = build_stage(plan.config, 0, 1, plan.seed, dtype)
        self.parameters = FlatParameters(module, plan.learning_rate)
        self._replica = DistributedDataParallel(module, init_sync=False)
        self._last_gradient_ns = 0
        for parameter in module.parameters():
            parameter.register_post_accumulate_grad_hook(self._note_time)  # type: ignore[no-untyped-call]

    def run_iteration(self, iteration: int) -> float:
        """Train one iteration. Returns this replica's share of its mean loss."""
        plan = self._plan
        self._spans.begin(iteration)
        self.parameters.gradients.zero_()
        share = 0.0
        for number in range(plan.microbatches):
            tokens, following = self._tokens.batch(iteration, plan.pipeline, number)
            last = number == plan.microbatches - 1
            with nullcontext() if last else self._replica.no_sync():
                with self._spans.measured("forward", number):
                    loss = language_loss(self._replica(tokens), following) / plan.microbatches
                start_ns = time.monotonic_ns()
                loss.backward()  # type: ignore[no-untyped-call]
            # The last one returns when all buckets have been reduced, which is not computation.
            self._spans.record("backward", number, start_ns, self._last_gradient_ns)
            share += loss.item() / plan.pipelines
        with self._spans.measured("optimizer"):
            self.parameters.update()
        return share

    def _note_time(self, _: torch.Tensor) -> None:
        self._last_gradient_ns = time.monotonic_ns()

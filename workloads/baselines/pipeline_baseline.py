"""One stage of a pipeline that torch's own schedules run."""

import torch
import torch.distributed as dist
from torch.distributed.pipelining import Schedule1F1B, ScheduleGPipe, ScheduleInterleavedZeroBubble

from workloads.baselines.baseline_config import TORCH_1F1B, TORCH_GPIPE, BaselineConfig
from workloads.baselines.compute_spans import ComputeSpans
from workloads.baselines.rendezvous import ProcessGroups
from workloads.baselines.timed_stage import TimedStage
from workloads.compute.flat_parameters import FlatParameters
from workloads.model.gpt_stage import build_stage, language_loss
from workloads.model.tokens import TokenSource


class PipelineBaseline:
    """Trains one stage: each iteration is one step of torch's schedule, an all-reduce over the replicas, and AdamW.

    The loss of each microbatch is scaled by 1 / (microbatches x pipelines) and gradients are summed over both, so that
    they are those of the mean over the global batch. All gradients of the stage are reduced at once.
    """

    def __init__(self, plan: BaselineConfig, dtype: torch.dtype, groups: ProcessGroups, spans: ComputeSpans) -> None:
        self._plan = plan
        self._spans = spans
        self._replicas = groups.replicas
        self._tokens = TokenSource(plan.config, plan.seed, plan.text)
        module = build_stage(plan.config, plan.stage, plan.stages, plan.seed, dtype)
        self.parameters = FlatParameters(module, plan.learning_rate)
        # With the shapes given, torch need not run the stage once on meta data to learn them.
        stage = TimedStage(
            spans,
            module,
            plan.stage,
            plan.stages,
            group=groups.pipeline,
            input_args=self._example(plan.stage, dtype),
            output_args=self._example(plan.stage + 1, dtype),
        )
        self._schedule = self._new_schedule(stage)

    def run_iteration(self, iteration: int) -> float | None:
        """Train one iteration. Returns this replica's share of its mean loss where this is the last stage."""
        plan = self._plan
        self._spans.begin(iteration)
        self.parameters.gradients.zero_()
        batches = [self._tokens.batch(iteration, plan.pipeline, number) for number in range(plan.microbatches)]
        inputs = [torch.cat([tokens for tokens, _ in batches])] if plan.stage == 0 else []
        targets = torch.cat([following for _, following in batches]) if plan.stage == plan.stages - 1 else None
        losses: list[torch.Tensor] = []
        self._schedule.step(*inputs, target=targets, losses=losses, return_outputs=False)
        if self._replicas is not None:
            dist.all_reduce(self.parameters.gradients, group=self._replicas)
        with self._spans.measured("optimizer"):
            self.parameters.update()
        return sum(loss.item() for loss in losses) if losses else None

    def _new_schedule(self, stage: TimedStage) -> ScheduleGPipe | Schedule1F1B | ScheduleInterleavedZeroBubble:
        # scale_grads: torch would divide the gradients by the number of microbatches, which the loss does already.
        microbatches = self._plan.microbatches
        if self._plan.schedule == TORCH_GPIPE:
            return ScheduleGPipe(stage, microbatches, self._scaled_loss, scale_grads=False)
        if self._plan.schedule == TORCH_1F1B:
            return Schedule1F1B(stage, microbatches, self._scaled_loss, scale_grads=False)
        return ScheduleInterleavedZeroBubble([stage], microbatches, self._scaled_loss, scale_grads=False)

    def _scaled_loss(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Compute the scaled loss, the last part of a forward in the last stage, right after the stage's own."""
        loss = language_loss(logits, targets) / (self._plan.microbatches * self._plan.pipelines)
        self._spans.extend()
        return loss

    def _example(self, boundary: int, dtype: torch.dtype) -> torch.Tensor:
        """Return the input of stage ``boundary`` for one microbatch: shape and type alone."""
        config = self._plan.config
        if boundary == 0:
            return torch.empty(1, config.context, dtype=torch.int64, device="meta")
        if boundary == self._plan.stages:
            return torch.empty(1, config.context, config.vocabulary, dtype=dtype, device="meta", requires_grad=True)
        return torch.empty(1, config.context, config.hidden, dtype=dtype, device="meta", requires_grad=True)

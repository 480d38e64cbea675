"""One stage of a pipeline that torch's own schedules run, and its messages between GPU and host memory.

Gloo sends and receives only what is in host memory. So torch's ``PipelineStage`` is given the CPU as its device: all
its buffers are there, and nothing of its communication changes. The module that it runs copies its inputs to the GPU
and its outputs back, and so do their gradients. Copies are no part of a span.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleavedZeroBubble

from wanbed.results.records.span_log import DeviceRecord
from wanbed.workloads.baselines.baseline_config import TORCH_1F1B, TORCH_GPIPE, BaselineConfig
from wanbed.workloads.baselines.compute_spans import ComputeSpans, device_record
from wanbed.workloads.baselines.rendezvous import ProcessGroups
from wanbed.workloads.compute.device.device_runtime import DeviceRuntime
from wanbed.workloads.compute.device.torch_device import TorchDevice
from wanbed.workloads.compute.flat_parameters import FlatParameters
from wanbed.workloads.gpt.gpt_stage import DTYPES, build_stage, language_loss
from wanbed.workloads.gpt.tokens import TokenSource


class StagedModule(nn.Module):
    """The stage ``module``, which is on the GPU ``device``, for inputs and outputs in host memory.

    The first stage's inputs are tokens. The last stage's outputs stay on the GPU for the loss. Within a span that
    ``spans`` measures, forward and backward let it start after their first copy and end before their last.
    """

    def __init__(
        self, module: nn.Module, device: TorchDevice, spans: ComputeSpans, *, is_first: bool, is_last: bool
    ) -> None:
        super().__init__()
        self.module = module
        self.spans = spans
        self._device = device
        self._is_first, self._is_last = is_first, is_last
        self.to_host_bytes = self.to_device_bytes = 0

    def forward(self, inputs: Tensor) -> Tensor:
        """Run the stage."""
        staged = self.to_device(inputs) if self._is_first else _ToDevice.apply(inputs, self)  # type: ignore[no-untyped-call]
        self.spans.restart()
        output: Tensor = self.module(staged)
        self.spans.stop()
        return output if self._is_last else _ToHost.apply(output, self)  # type: ignore[no-untyped-call]

    def to_device(self, tensor: Tensor) -> Tensor:
        """Return a copy on the GPU. Kernels that are enqueued later wait for it, the host need not."""
        self.to_device_bytes += tensor.nbytes
        return tensor.to(self._device.device, non_blocking=True)

    def to_host(self, tensor: Tensor) -> Tensor:
        """Return a copy in host memory, complete on return."""
        self.to_host_bytes += tensor.nbytes
        return self._device.on_host(tensor)


class _ToDevice(torch.autograd.Function):
    """Inputs come from the previous stage; their gradients go back there after the backward's last kernel."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, stage: StagedModule) -> Tensor:
        ctx.stage = stage
        return stage.to_device(inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        ctx.stage.spans.stop()
        return ctx.stage.to_host(gradient), None


class _ToHost(torch.autograd.Function):
    """Outputs go to the next stage; their gradients come from there before the backward's first kernel."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, stage: StagedModule) -> Tensor:
        ctx.stage = stage
        return stage.to_host(output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        staged = ctx.stage.to_device(gradient)
        ctx.stage.spans.restart()
        return staged, None


class TimedStage(PipelineStage):
    """A ``PipelineStage`` that also measures each forward and backward.

    torch waits for received tensors before it calls these methods, so that no waiting is measured. In the first stage,
    whose input needs no gradient, torch defers all of a split backward: the ``backward_input`` spans are empty and the
    ``backward_weight`` spans are whole backwards. ``runtime`` is that of the GPU whose copies use torch's buffers, None
    on the CPU.
    """

    def __init__(
        self,
        spans: ComputeSpans,
        module: torch.nn.Module,
        stage: int,
        stages: int,
        runtime: DeviceRuntime | None,
        **options: Any,
    ) -> None:
        super().__init__(module, stage, stages, torch.device("cpu"), **options)
        self._spans = spans
        self._runtime = runtime
        self._pinned: set[int] = set()

    def get_fwd_recv_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        """Return torch's receives of an activation, into page-locked buffers on a GPU."""
        return self._into_pinned(super().get_fwd_recv_ops(fwd_chunk_id))

    def get_bwd_recv_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        """Return torch's receives of a gradient, into page-locked buffers on a GPU."""
        return self._into_pinned(super().get_bwd_recv_ops(bwd_chunk_id))

    def _into_pinned(self, receives: list[dist.P2POp]) -> list[dist.P2POp]:
        """Give torch's buffers page-locked memory, once each: torch uses the same ones in every iteration."""
        if self._runtime is not None:
            for buffer in (receive.tensor for receive in receives):
                if buffer.data_ptr() not in self._pinned:
                    buffer.data = self._runtime.pinned(buffer.nbytes).view(buffer.dtype).view(buffer.shape)
                    self._pinned.add(buffer.data_ptr())
        return receives

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **options: Any) -> Any:
        """Run and measure torch's forward."""
        with self._spans.measured("forward", fwd_chunk_id):
            return super().forward_one_chunk(fwd_chunk_id, *args, **options)

    def backward_one_chunk(
        self, bwd_chunk_id: int, loss: Any = None, full_backward: bool = True, last_backward: bool = False
    ) -> None:
        """Run and measure torch's backward: only the gradient of the input unless ``full_backward``."""
        with self._spans.measured("backward" if full_backward else "backward_input", bwd_chunk_id):
            super().backward_one_chunk(bwd_chunk_id, loss, full_backward, last_backward)

    def backward_weight_one_chunk(self, bwd_chunk_id: int, last_backward: bool = False) -> None:
        """Run and measure torch's weight backward."""
        with self._spans.measured("backward_weight", bwd_chunk_id):
            super().backward_weight_one_chunk(bwd_chunk_id, last_backward)


class PipelineBaseline:
    """Trains one stage. An iteration is one step of torch's schedule, an all-reduce over the replicas, and AdamW.

    The loss of each microbatch is scaled by 1 / (microbatches x pipelines) and gradients are summed over both, so that
    they are those of the mean over the global batch. One all-reduce covers all gradients of the stage. On a GPU what
    Gloo sends is staged in host memory (``StagedModule``).
    """

    def __init__(
        self,
        rank_config: BaselineConfig,
        groups: ProcessGroups,
        spans: ComputeSpans,
        device: TorchDevice,
    ) -> None:
        learning, stage, stages = rank_config.learning, rank_config.place.stage, rank_config.shape.stages
        self._shape = rank_config.shape
        self._model = learning.model
        self._pipeline = rank_config.place.pipeline
        self._is_first, self._is_last = stage == 0, stage == stages - 1
        dtype = DTYPES[learning.precision]
        self._spans = spans
        self._device = device
        self._replicas = groups.replicas
        self._tokens = TokenSource(learning.model, learning.seed, learning.text, learning.held_out)
        module: torch.nn.Module
        module = build_stage(learning.model, stage, stages, learning.seed, dtype)
        module = module.to(device.device)
        self.parameters = FlatParameters(module, learning.learning_rate)
        self._staged: StagedModule | None = None
        if device.runtime is not None:
            module = self._staged = StagedModule(module, device, spans, is_first=self._is_first, is_last=self._is_last)
        # Given the shapes, torch need not run the stage once on the meta device to find them.
        timed = TimedStage(
            spans,
            module,
            stage,
            stages,
            device.runtime,
            group=groups.pipeline,
            input_args=self._example(stage, dtype),
            output_args=self._example(stage + 1, dtype),
        )
        self._schedule = self._new_schedule(timed)

    def run_iteration(self, iteration: int) -> float | None:
        """Train one iteration. Return this replica's mean loss at the last stage, None at the others."""
        self._spans.begin(iteration)
        self.parameters.gradients.zero_()
        batches = [self._tokens.batch(iteration, self._pipeline, number) for number in range(self._shape.microbatches)]
        inputs = [torch.cat([tokens for tokens, _ in batches])] if self._is_first else []
        targets = torch.cat([following for _, following in batches]).to(self._device.device) if self._is_last else None
        losses: list[torch.Tensor] = []
        self._schedule.step(*inputs, target=targets, losses=losses, return_outputs=False)
        if self._replicas is not None:
            self._all_reduce(self.parameters.gradients)
        with self._spans.measured("optimizer"):
            self.parameters.update()
        return sum(loss.item() for loss in losses) * self._shape.pipelines if losses else None

    def device_record(self) -> DeviceRecord:
        """Return the device, and how many bytes of messages were staged."""
        staged = self._staged
        return device_record(
            self._device,
            self._spans,
            to_host_bytes=0 if staged is None else staged.to_host_bytes,
            to_device_bytes=0 if staged is None else staged.to_device_bytes,
        )

    def _all_reduce(self, gradients: torch.Tensor) -> None:
        if self._staged is None:
            dist.all_reduce(gradients, group=self._replicas)
            return
        summed = self._staged.to_host(gradients)
        dist.all_reduce(summed, group=self._replicas)
        gradients.copy_(summed)
        self._staged.to_device_bytes += summed.nbytes

    def _new_schedule(self, stage: TimedStage) -> ScheduleGPipe | Schedule1F1B | ScheduleInterleavedZeroBubble:
        # scale_grads=False: the loss is already divided by the number of microbatches.
        microbatches = self._shape.microbatches
        if self._shape.schedule == TORCH_GPIPE:
            return ScheduleGPipe(stage, microbatches, self._scaled_loss, scale_grads=False)
        if self._shape.schedule == TORCH_1F1B:
            return Schedule1F1B(stage, microbatches, self._scaled_loss, scale_grads=False)
        return ScheduleInterleavedZeroBubble([stage], microbatches, self._scaled_loss, scale_grads=False)

    def _scaled_loss(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the scaled loss. It is the last part of the last stage's forward, whose span is extended by it."""
        loss = language_loss(logits, targets) / (self._shape.microbatches * self._shape.pipelines)
        self._spans.stop()
        return loss

    def _example(self, boundary: int, dtype: torch.dtype) -> torch.Tensor:
        """Return a meta tensor with shape and type of the input of stage ``boundary``, for one microbatch."""
        model = self._model
        if boundary == 0:
            return torch.empty(1, model.context, dtype=torch.int64, device="meta")
        if boundary == self._shape.stages:
            return torch.empty(1, model.context, model.vocabulary, dtype=dtype, device="meta", requires_grad=True)
        return torch.empty(1, model.context, model.hidden, dtype=dtype, device="meta", requires_grad=True)

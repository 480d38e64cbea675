"""Compute a stage on a GPU while torch's schedule exchanges its messages in host memory.

Gloo sends and receives only what is in host memory. So torch's ``PipelineStage`` is given the CPU as its device: all
its buffers are there, and nothing of its communication changes. The module that it runs copies its inputs to the GPU
and its outputs back, and so do their gradients. Copies are no part of a span.
"""

from typing import Any

import torch
from torch import Tensor, nn

from wanbed.workloads.baselines.compute_spans import ComputeSpans
from wanbed.workloads.compute.device.torch_device import TorchDevice


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

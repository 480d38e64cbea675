"""Measure a device: the actions of one stage, the prefill of prompts, and products of large square matrices.

Stages compute as in a rank, prompts by the layers that prefill in bubbles uses. The products are the ceiling that a
model's speed on the device is compared with.
"""

import gc
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch

from wanbed.workloads.compute.device.torch_device import TorchDevice, as_bytes
from wanbed.workloads.compute.torch_compute import TorchCompute
from wanbed.workloads.compute.torch_work import TorchWork
from wanbed.workloads.gpt.gpt_stage import DTYPES
from wanbed.workloads.inference.inference_stage import InferenceStage
from wanbed.workloads.message import Message, MessageKind
from wanbed.workloads.profiles.repeats import Pace, repeated
from wanbed.workloads.schedules.action import Action, ActionKind

_PRODUCT = "product"


@dataclass(frozen=True)
class ProductTimes:
    """The times in nanoseconds of one product of two ``size`` x ``size`` matrices, one figure per repeat."""

    size: int
    repeats_ns: tuple[int, ...]


def measure_product(device: TorchDevice, dtype: torch.dtype, size: int, pace: Pace) -> ProductTimes:
    """Measure the product of two random matrices.

    The time to create them is not included. Several products in one pass keep the launch overhead small.
    """
    multiply = _multiplication(device, dtype, size)

    def passes(count: int) -> dict[str, int]:
        start_ns, end_ns = device.timed(lambda: multiply(count))
        return {_PRODUCT: max(1, (end_ns - start_ns) // count)}

    return ProductTimes(size, repeated(passes, pace)[_PRODUCT])


def _multiplication(device: TorchDevice, dtype: torch.dtype, size: int) -> Callable[[int], None]:
    generator = torch.Generator().manual_seed(size)
    one, other = (torch.randn(size, size, generator=generator).to(device.device, dtype) for _ in range(2))
    product = torch.empty_like(one)

    def multiply(count: int) -> None:
        for _ in range(count):
            torch.mm(one, other, out=product)

    return multiply


_CHUNK = "chunk"


def measure_chunk(
    stage: InferenceStage,
    tokens: int,
    prior_tokens: int,
    pace: Pace,
    progress: Callable[[], None] = lambda: None,
) -> tuple[int, ...]:
    """Measure a chunk of random tokens after ``prior_tokens`` through all layers of the stage: ns, one for each repeat.

    With no prior tokens it is a whole prompt. Embedding and head are included if the stage has them. The KV cache with
    the prior tokens is made before the measurement.
    """
    inputs = _inputs(stage, prior_tokens + tokens)
    cache = stage.new_cache(prior_tokens + tokens)
    if prior_tokens:
        stage.prefill_chunk(cache, inputs[:prior_tokens], 0)
    chunk = inputs[prior_tokens:]

    def prefill() -> None:
        stage.prefill_chunk(cache, chunk, prior_tokens)

    def passes(count: int) -> dict[str, int]:
        spent_ns = 0
        for _ in range(count):
            cache.forget_after(prior_tokens)
            start_ns, end_ns = stage.device.timed(prefill)
            spent_ns += end_ns - start_ns
        return {_CHUNK: max(1, spent_ns // count)}

    return repeated(passes, pace, progress)[_CHUNK]


def _inputs(stage: InferenceStage, tokens: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(tokens)
    if stage.is_first:
        numbers = torch.randint(stage.model.vocabulary, (tokens,), generator=generator)
        return numbers.to(stage.device.device)
    hidden = torch.randn(tokens, stage.model.hidden, generator=generator)
    return hidden.to(stage.device.device, stage.dtype)


_WHOLE = (ActionKind.FORWARD, ActionKind.RECOMPUTE, ActionKind.BACKWARD)

_SPLIT = (ActionKind.FORWARD, ActionKind.RECOMPUTE, ActionKind.BACKWARD_INPUT, ActionKind.BACKWARD_WEIGHT)

OPTIMIZER = "optimizer"

_GRADIENT_DEVIATION = 1e-3

_LEARNING_RATE = 1e-20
"""So low that no step changes a weight: thousands of steps on the same inputs would carry activations far away.

A step costs the same at any rate. Lower rates would make a CPU compute with denormal numbers, which are slow.
"""


class StageDriver:
    """Runs one stage with random activations and gradients instead of messages of its neighbour stages.

    Times are between CUDA events on a GPU, and on the monotonic clock on the CPU, as in a rank's spans. They do not
    include the copies of messages between GPU and host. Weights stay as they were drawn, whatever the learning rate of
    ``work``.
    """

    def __init__(self, work: TorchWork) -> None:
        self._work = replace(work, learning=replace(work.learning, learning_rate=_LEARNING_RATE))
        self._compute = TorchCompute(self._work, release=lambda _: None)
        self._actions = _SPLIT if work.split_backward else _WHOLE
        stage, stages = work.computed.stage, work.computed.stages
        self._is_first, self._is_last = stage == 0, stage == stages - 1
        # Not zeros: the power of matrix products, and so a GPU's clock, depends on the values.
        self._activation, self._gradient = self._payload(1.0), self._payload(_GRADIENT_DEVIATION)

    def split_backwards(self) -> None:
        """From now on, run the two parts of backwards as actions of their own."""
        self._compute.split_backwards()
        self._actions = _SPLIT

    def passes(self, count: int) -> dict[str, int]:
        """Run ``count`` microbatches and as many optimizer steps. Return the mean nanoseconds of each action."""
        performed: list[str] = []
        self._compute.begin(0)
        for microbatch in range(count):
            if not self._is_first:
                self._compute.arrived(Message(MessageKind.ACTIVATION, microbatch), self._activation)
            for kind in self._actions:
                if kind in (ActionKind.BACKWARD, ActionKind.BACKWARD_INPUT) and not self._is_last:
                    self._compute.arrived(Message(MessageKind.GRADIENT, microbatch), self._gradient)
                self._compute.perform(Action(kind, microbatch))
                performed.append(kind.value)
                self._send(kind, microbatch)
        for _ in range(count):
            self._compute.update()
            performed.append(OPTIMIZER)
        # Not the times that perform and update return: the host's times include launching kernels and waking up.
        spent_ns: dict[str, int] = defaultdict(int)
        for action, (start_ns, end_ns) in zip(performed, self._compute.resolve(), strict=True):
            spent_ns[action] += end_ns - start_ns
        return {action: time_ns // count for action, time_ns in spent_ns.items()}

    def _send(self, kind: ActionKind, microbatch: int) -> None:
        message = None
        if kind is ActionKind.FORWARD and not self._is_last:
            message = Message(MessageKind.ACTIVATION, microbatch)
        elif kind in (ActionKind.BACKWARD, ActionKind.BACKWARD_INPUT) and not self._is_first:
            message = Message(MessageKind.GRADIENT, microbatch)
        if message is not None:
            self._compute.outgoing(message)
            self._compute.sent(message)

    def _payload(self, deviation: float) -> memoryview:
        """Return random values where a rank receives messages: on a GPU's host in pinned memory."""
        learning = self._work.learning
        generator = torch.Generator().manual_seed(learning.seed)
        values = torch.randn(learning.model.context * learning.model.hidden, generator=generator) * deviation
        payload = as_bytes(values.to(DTYPES[learning.precision]))
        received = self._compute.receive_buffer(payload.nbytes)
        if received is None:
            return payload
        received[:] = payload
        return received


def measure_stage(
    work: TorchWork, pace: Pace, progress: Callable[[], None] = lambda: None
) -> Mapping[str, tuple[int, ...]]:
    """Measure every action of a stage, and ``optimizer``: nanoseconds, one figure per repeat (see ``repeated``).

    The whole backward is measured unsplit, and its parts split. The kernels differ a little, so the parts need not add
    up to the whole. ``progress`` is called after each repeat, twice ``pace.repeats`` times. Raise the errors of
    ``TorchCompute``, or torch.OutOfMemoryError.
    """
    driver = StageDriver(replace(work, recompute=True, split_backward=False))
    whole = repeated(driver.passes, pace, progress)
    driver.split_backwards()
    parts = repeated(driver.passes, pace, progress)
    # A computation has reference cycles, so that only the garbage collector frees its memory for the next stage.
    del driver
    gc.collect()
    return {**parts, **whole}

"""Train one stage of a GPT with torch."""

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from wanbed.results.records.span_log import NO_MICROBATCH, DeviceRecord
from wanbed.workloads.compute.activation_codec import MessageEncoder, decode_message
from wanbed.workloads.compute.compute import BucketCompute, MeasuredDevice, TrainingGpu
from wanbed.workloads.compute.device.device_measurement import DeviceMeasurement
from wanbed.workloads.compute.device.staging import IncomingCopy, OutgoingCopy, create_staging
from wanbed.workloads.compute.device.torch_device import as_tensor, configured_device
from wanbed.workloads.compute.flat_parameters import FlatParameters
from wanbed.workloads.compute.torch_work import TorchWork
from wanbed.workloads.gpt.gpt_stage import (
    DTYPES,
    DeferredGradients,
    GptStage,
    WeightGradient,
    build_stage,
    language_loss,
)
from wanbed.workloads.gpt.tokens import TokenSource
from wanbed.workloads.message import Message, MessageKind
from wanbed.workloads.schedules.action import Action, ActionKind
from wanbed.workloads.synchronization.outer_optimizer import OuterOptimizer, OuterSteps
from wanbed.workloads.transport.ring_round import cut_buckets

Part = tuple[int, int]
"""The first element of a part of the flat gradients, and the one after its last."""


class GradientBuckets:
    """The buckets of one backward, in the order in which they are summed: from the last elements to the first.

    ``parts`` has the parameters with the elements that the gradient of each has in the flat gradients. ``complete`` is
    called with each bucket, in order, as soon as all gradients in it and in those before it are final.
    """

    def __init__(
        self, parts: Mapping[nn.Parameter, Part], buckets: Collection[Part], complete: Callable[[int, int], None]
    ) -> None:
        self._buckets = list(buckets)
        self._complete = complete
        self._missing = {
            parameter: [
                number for number, (start, end) in enumerate(self._buckets) if first < end and start < after_last
            ]
            for parameter, (first, after_last) in parts.items()
        }
        self._open = [0] * len(self._buckets)
        for numbers in self._missing.values():
            for number in numbers:
                self._open[number] += 1
        self._next = 0

    @contextmanager
    def hooked(self) -> Iterator[None]:
        """Within this context, take a gradient as final as soon as a backward has added to it."""
        handles = [
            parameter.register_post_accumulate_grad_hook(self.final)  # type: ignore[no-untyped-call]
            for parameter in self._missing
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def final(self, parameter: Tensor) -> None:
        """Handle that the gradient of ``parameter`` is final."""
        for number in self._missing.pop(parameter, ()):  # type: ignore[call-overload]
            self._open[number] -= 1
        while self._next < len(self._buckets) and not self._open[self._next]:
            bucket = self._buckets[self._next]
            self._next += 1
            self._complete(*bucket)

    def final_but(self, awaited: Collection[Tensor]) -> None:
        """Handle that all gradients are final, but those of ``awaited``."""
        kept = {id(parameter) for parameter in awaited}
        for parameter in [each for each in self._missing if id(each) not in kept]:
            self.final(parameter)


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of the model: the stage itself, or one of its virtual stages.

    ``encoded_before`` and ``encoded_after`` tell whether the messages that it exchanges with the part before it, and
    with the one after it, are encoded.
    """

    module: GptStage
    is_first: bool
    is_last: bool
    encoded_before: bool = False
    encoded_after: bool = False


_Key = tuple[int, int]
"""A microbatch, and the chunk that it is in."""


@dataclass(slots=True)
class _InFlight:
    """The state of a microbatch from its forward to its backward. ``inputs`` uses the memory of ``payload``.

    Until its forward decodes them, ``inputs`` may be encoded. ``targets`` are None except at the last stage.
    """

    inputs: Tensor
    payload: memoryview | None
    targets: Tensor | None
    root: GradientEdge | None = None


@dataclass(slots=True)
class _DeferredWeights:
    """The state of a microbatch between the input part and the weight part of its backward."""

    gradients: list[WeightGradient]
    payload: memoryview | None


def _messages(work: TorchWork) -> Counter[int]:
    """Return how many messages of each size a stage exchanges in an iteration, both ways."""
    computed, learning, encoded = work.computed, work.learning, work.encoded
    found: Counter[int] = Counter()
    for part in computed.parts:
        for boundary in (part - 1, part):
            if 0 <= boundary < computed.all_parts - 1:
                size_bytes = learning.model.activation_bytes(learning.precision)
                if encoded is not None and boundary in encoded.boundaries:
                    size_bytes = encoded.wire.encoded_bytes(learning.model.context * learning.model.hidden)
                found[size_bytes] += 2 * computed.microbatches
    return found


class TorchCompute(BucketCompute, MeasuredDevice):
    """Trains one stage as configured by ``work``, or all its virtual stages, each as a chunk of its own.

    ``parameters`` are its weights, gradients and optimizer. ``synchronized`` takes the steps of its synchronisations;
    None without any.

    The same inputs give the same bits on the CPU, and with a deterministic ``work.device`` on a GPU too.

    The loss of each microbatch is divided by microbatches x pipelines, so that gradients summed over the replicas are
    those of the mean over the iteration's whole batch; by the microbatches alone where replicas train alone.

    On the CPU tensors use the memory of received payloads; a payload is given to ``release`` after its last use: an
    activation after its microbatch's backward (or the input part of it), a gradient after all parts of the backward,
    and one that is encoded as soon as it is decoded. On a GPU payloads are copied on arrival and then released.

    A span covers the computation of an action, encoding and decoding included, not the copies from and to a GPU (see
    ``Staging``): the host prepares what an action needs before its span, and stages what it sends after it. With
    ``gpu`` each action and the update first claim that GPU for training. The number of torch's threads and the choice
    of kernels are set for the whole process.

    Raises ValueError for a missing device or a text that is too short, OSError if the text cannot be read.
    """

    def __init__(self, work: TorchWork, release: Callable[[memoryview], None], gpu: TrainingGpu | None = None) -> None:
        computed, learning = work.computed, work.learning
        self._work = work
        self._gpu = gpu
        self._release = release
        self._device = configured_device(work.device)
        self._staging = create_staging(self._device, _messages(work))
        self._measurement = DeviceMeasurement(self._device, work.device.check_iteration)
        self._dtype = DTYPES[learning.precision]
        self._tokens = TokenSource(learning.model, learning.seed, learning.text, learning.held_out)
        self._parts = [self._part(number) for number in computed.parts]
        modules = [part.module for part in self._parts]
        self.parameters = self._parameters = FlatParameters(modules, learning.learning_rate)
        self.synchronized: OuterSteps | None = None
        if work.synchronization is not None:
            parameters = self._parameters
            outer = OuterOptimizer(
                parameters.exact, work.synchronization, computed.pipelines, changed=parameters.exact_changed
            )
            self.synchronized = OuterSteps(
                outer, lambda step: self._timed(step, "optimizer", NO_MICROBATCH), self._release
            )
        self._encoder = None if work.encoded is None else MessageEncoder(work.encoded.wire)
        self._deferred = DeferredGradients()
        if work.split_backward:
            self.split_backwards()
        self._work_of = {
            ActionKind.FORWARD: self._forward,
            ActionKind.RECOMPUTE: self._recompute,
            ActionKind.BACKWARD: self._backward,
            ActionKind.BACKWARD_INPUT: self._backward_input,
            ActionKind.BACKWARD_WEIGHT: self._backward_weight,
        }
        self._iteration = 0
        self._begun: dict[tuple[int, Message], IncomingCopy] = {}
        self._received: dict[Message, tuple[IncomingCopy, memoryview | None]] = {}
        self._in_flight: dict[_Key, _InFlight] = {}
        self._left: dict[_Key, _DeferredWeights] = {}
        self._made: tuple[Message, Tensor] | None = None
        self._outgoing: dict[Message, OutgoingCopy] = {}
        self._losses: dict[int, Tensor] = {}
        self._summed: list[tuple[Tensor, OutgoingCopy]] = []
        self._buckets: GradientBuckets | None = None
        self._kept: Tensor | None = None

    def split_backwards(self) -> None:
        """From now on, take the two parts of backwards as actions of their own. No microbatch may be in flight."""
        self._work = replace(self._work, split_backward=True)
        for part in self._parts:
            part.module.defer_weight_gradients(self._deferred)

    def _part(self, number: int) -> _Part:
        learning, parts = self._work.learning, self._work.computed.all_parts
        module = build_stage(learning.model, number, parts, learning.seed, self._dtype)
        encoded = () if self._work.encoded is None else self._work.encoded.boundaries
        return _Part(
            module.to(self._device.device), number == 0, number == parts - 1, number - 1 in encoded, number in encoded
        )

    def _arrives_encoded(self, message: Message) -> bool:
        part = self._parts[message.chunk]
        return part.encoded_before if message.kind is MessageKind.ACTIVATION else part.encoded_after

    def _arrives_as(self, message: Message) -> torch.dtype:
        return torch.uint8 if self._arrives_encoded(message) else self._dtype

    def begin(self, iteration: int) -> None:
        """Begin ``iteration``: use its tokens, and set the gradients to zero."""
        self._iteration = iteration
        self._measurement.begin(iteration)
        self._parameters.gradients.zero_()
        self._losses.clear()

    def begin_copy(self, iteration: int, message: Message, payload: memoryview) -> None:
        """Begin to copy a payload to the GPU, before ``arrived`` and in any thread.

        So the copy runs while an action computes. ``payload`` is released after it, maybe before ``arrived``.
        """
        self._begun[iteration, message] = self._staging.incoming(payload, self._arrives_as(message), self._release)
        self._staging.settle()

    def arrived(self, message: Message, payload: memoryview) -> None:
        """Keep an activation or gradient: context x hidden elements in the stage's precision, or encoded."""
        copy = self._begun.pop((self._iteration, message), None)
        if copy is None:
            copy = self._staging.incoming(payload, self._arrives_as(message), self._release)
        self._received[message] = copy, payload if self._staging.keeps_payload else None
        self._staging.settle()

    def perform(self, action: Action) -> tuple[int, int]:
        """Carry out ``action``. Raise ValueError for a part of a backward if ``work`` does not split backwards."""
        if not self._work.split_backward and action.kind in (ActionKind.BACKWARD_INPUT, ActionKind.BACKWARD_WEIGHT):
            raise ValueError(f"split_backward: is false, but the schedule asks for {action}")
        work, key = self._work_of[action.kind], (action.microbatch, action.chunk)
        if action.kind is ActionKind.FORWARD:
            self._in_flight[key] = self._inputs(*key)
        elif action.kind in (ActionKind.BACKWARD, ActionKind.BACKWARD_INPUT) and not self._parts[action.chunk].is_last:
            # Here and not in the action: waiting for a message is not part of the span.
            self._received[Message(MessageKind.GRADIENT, *key)][0].let_compute_wait()
        interval = self._timed(lambda: work(*key), action.kind.value, action.microbatch)
        if self._made is not None:
            message, tensor = self._made
            self._made, self._outgoing[message] = None, self._staging.outgoing(tensor)
        self._staging.settle()
        return interval

    def perform_in_buckets(
        self, action: Action, buckets: int, complete: Callable[[Callable[[], memoryview]], None]
    ) -> tuple[int, int]:
        """Do as ``perform``. A bucket is complete when the backward has added to all gradients in it."""
        gradients, element_bytes = self._parameters.gradients, self._parameters.gradients.element_size()
        cuts = [
            (start // element_bytes, end // element_bytes)
            for start, end in cut_buckets(gradients.nbytes, element_bytes, buckets)
        ]
        parts = self._parameters.parts()
        self._buckets = GradientBuckets(parts, cuts, lambda start, end: complete(self._hand_over(gradients[start:end])))
        # Those of other virtual stages are final.
        self._buckets.final_but(tuple(self._parts[action.chunk].module.parameters()))
        try:
            return self.perform(action)
        finally:
            self._buckets = None

    def _hand_over(self, gradients: Tensor) -> Callable[[], memoryview]:
        copy = self._staging.outgoing(gradients)
        self._summed.append((gradients, copy))
        return copy.payload

    def outgoing(self, message: Message) -> memoryview:
        """Return the bytes of an activation or gradient: the tensor's memory on the CPU, the finished copy on a GPU."""
        return self._outgoing[message].payload()

    def sent(self, message: Message) -> None:
        """Release the tensor of ``message``."""
        self._outgoing.pop(message).release()

    def gradients(self) -> memoryview | None:
        """Return the stage's gradients in the stage's precision, None if no other replica has any to add.

        On the CPU this is the memory that backwards add to. On a GPU it is a copy, which ``update`` copies back.
        """
        if self._work.gradient_replicas == 1:
            return None
        return self._hand_over(self._parameters.gradients)()

    def add(self, total: memoryview, part: memoryview) -> None:
        """Add element by element, in the stage's precision."""
        if total.nbytes:
            as_tensor(total, self._dtype).add_(as_tensor(part, self._dtype))

    def keep_sum(self) -> None:
        """Keep the summed gradients of a flush, and set the gradients to zero."""
        self._take_sum()
        self._kept = self._parameters.gradients.clone()
        self._parameters.gradients.zero_()

    def update(self) -> tuple[int, int]:
        """Take one step of AdamW over all weights of the stage. Return its start and end."""
        self._take_sum()
        return self._timed(self._parameters.update, "optimizer", NO_MICROBATCH)

    def loss(self) -> float | None:
        """Return the mean loss of this replica's microbatches, before the update; None except at the last stage.

        The mean over the replicas is the iteration's loss.
        """
        if len(self._losses) < self._work.computed.microbatches:
            return None
        # The exact sum does not depend on the order in which a schedule runs the forwards.
        return math.fsum(torch.stack(tuple(self._losses.values())).tolist()) * self._work.gradient_replicas

    def named_gradients(self) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
        """Return an fp32 copy of each parameter's gradient, summed after the all-reduce, by its name in the model."""
        self._take_sum()
        return self._parameters.gradient_arrays()

    @property
    def overlaps_copies(self) -> bool:
        """Return whether messages are copied from a GPU while it continues to compute."""
        return self._staging.overlaps

    def resolve(self) -> Sequence[tuple[int, int]]:
        """Return the busy intervals of the device since the last call."""
        self._staging.settle()
        return self._measurement.resolve()

    def record(self) -> DeviceRecord:
        """Return the measurements of the device so far."""
        return self._measurement.record(self._staging.to_host, self._staging.to_device)

    @property
    def device_gradients(self) -> Tensor:
        """The gradients on the device, for an all-reduce there instead of on ``gradients``."""
        return self._parameters.gradients

    def receive_buffer(self, size_bytes: int) -> memoryview | None:
        """Return memory to receive a payload in, None if any memory will do."""
        return self._staging.receive_buffer(size_bytes)

    def _timed(self, work: Callable[[], None], kind: str, microbatch: int) -> tuple[int, int]:
        gpu = self._gpu
        if gpu is None:
            return self._measurement.timed(kind, work)
        gpu.claim()
        gpu.began(time.monotonic_ns(), self._iteration, kind, microbatch)
        start_ns, end_ns = self._measurement.timed(kind, work)
        gpu.ended(end_ns)
        return start_ns, end_ns

    def _take_sum(self) -> None:
        for gradients, copy in self._summed:
            self._staging.take_back(gradients, copy)
        self._summed.clear()
        if self._kept is not None:
            self._parameters.gradients.add_(self._kept)
            self._kept = None

    def _inputs(self, microbatch: int, chunk: int) -> _InFlight:
        """Return the inputs of a microbatch on the device. Here and not in the action: copies are not part of spans."""
        part = self._parts[chunk]
        targets = self._batch(microbatch)[1].to(self._device.device) if part.is_last else None
        if part.is_first:
            return _InFlight(self._batch(microbatch)[0].to(self._device.device), None, targets)
        copy, payload = self._received.pop(Message(MessageKind.ACTIVATION, microbatch, chunk))
        inputs = copy.tensor if part.encoded_before else self._shaped(copy.tensor).requires_grad_()
        copy.let_compute_wait()
        return _InFlight(inputs, payload, targets)

    def _batch(self, microbatch: int) -> tuple[Tensor, Tensor]:
        return self._tokens.batch(self._iteration, self._work.computed.pipeline, microbatch)

    def _shaped(self, elements: Tensor) -> Tensor:
        model = self._work.learning.model
        return elements.view(1, model.context, model.hidden)

    def _decoded(self, encoded: Tensor, payload: memoryview | None) -> Tensor:
        """Return what a message has, in memory of its own, and release its payload."""
        assert self._work.encoded is not None
        model = self._work.learning.model
        elements = decode_message(encoded, model.context * model.hidden, self._work.encoded.wire)
        self._release_payload(payload)
        return self._shaped(elements.to(self._dtype))

    def _sendable(self, message: Message, tensor: Tensor) -> Tensor:
        """Return what is sent of the tensor in a message: itself, or encoded."""
        part = self._parts[message.chunk]
        encoded = part.encoded_after if message.kind is MessageKind.ACTIVATION else part.encoded_before
        if not encoded:
            return tensor
        assert self._encoder is not None
        return self._encoder.encode(tensor, message)

    def _output(self, microbatch: int, chunk: int) -> Tensor:
        """Return the activation for the next stage or, at the last stage, the microbatch's part of the mean loss."""
        held = self._in_flight[microbatch, chunk]
        output: Tensor = self._parts[chunk].module(held.inputs)
        if held.targets is None:
            return output
        return language_loss(output, held.targets) / (self._work.computed.microbatches * self._work.gradient_replicas)

    def _forward(self, microbatch: int, chunk: int) -> None:
        held = self._in_flight[microbatch, chunk]
        if self._parts[chunk].encoded_before:
            held.inputs = self._decoded(held.inputs, held.payload).requires_grad_()
            held.payload = None
        with torch.set_grad_enabled(not self._work.recompute):
            output = self._output(microbatch, chunk)
        if not self._work.recompute:
            # Backward needs the graph, not the output itself, which may be freed as soon as it has been sent.
            held.root = get_gradient_edge(output)
        if self._parts[chunk].is_last:
            self._losses[microbatch] = output.detach()
        else:
            message = Message(MessageKind.ACTIVATION, microbatch, chunk)
            self._made = message, self._sendable(message, output.detach())

    def _recompute(self, microbatch: int, chunk: int) -> None:
        self._in_flight[microbatch, chunk].root = get_gradient_edge(self._output(microbatch, chunk))

    def _backward(self, microbatch: int, chunk: int) -> None:
        with nullcontext() if self._buckets is None else self._buckets.hooked():
            self._backward_input(microbatch, chunk)
        self._backward_weight(microbatch, chunk)

    def _backward_input(self, microbatch: int, chunk: int) -> None:
        held = self._in_flight.pop((microbatch, chunk))
        assert held.root is not None, f"nothing has been computed that leads to the backward of {microbatch}"
        gradient, payload = self._output_gradient(microbatch, chunk)
        torch.autograd.backward(held.root, gradient)
        if not self._parts[chunk].is_first:
            assert held.inputs.grad is not None
            message = Message(MessageKind.GRADIENT, microbatch, chunk)
            self._made = message, self._sendable(message, held.inputs.grad)
        self._release_payload(held.payload)
        # The weight part may use the received gradient, so its payload is kept until then.
        self._left[microbatch, chunk] = _DeferredWeights(self._deferred.take(), payload)

    def _backward_weight(self, microbatch: int, chunk: int) -> None:
        left, buckets = self._left.pop((microbatch, chunk)), self._buckets
        if buckets is not None:
            # Backwards have added to all gradients that were not deferred.
            buckets.final_but([each.weight for each in left.gradients])
        for add_gradient in left.gradients:
            add_gradient()
            if buckets is not None:
                buckets.final(add_gradient.weight)
        self._release_payload(left.payload)

    def _output_gradient(self, microbatch: int, chunk: int) -> tuple[Tensor, memoryview | None]:
        if self._parts[chunk].is_last:
            return torch.ones((), device=self._device.device), None
        copy, payload = self._received.pop(Message(MessageKind.GRADIENT, microbatch, chunk))
        if self._parts[chunk].encoded_after:
            return self._decoded(copy.tensor, payload), None
        return self._shaped(copy.tensor), payload

    def _release_payload(self, payload: memoryview | None) -> None:
        if payload is not None:
            self._release(payload)

"""Programs that have the same results on the CPU and on a GPU, whatever the GPU may do late or in another order."""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from random import Random

import torch
from torch import Tensor

from tests.support.workloads.changed import changed
from tests.support.workloads.hostile_gpu.gpu import HostileGpu, hostile_device
from tests.support.workloads.reference_llama import SEED, TINY
from tests.workloads.compute.hand_driven import HandDriven, train_by_hand
from wanbed.workloads.bubbletea.bubble_filler import LayerRun
from wanbed.workloads.bubbletea.messages import Piece
from wanbed.workloads.compute.computed_stage import ComputedStage
from wanbed.workloads.compute.device.staging import OutgoingCopy, create_staging
from wanbed.workloads.compute.device.torch_device import CpuDevice, as_bytes, as_tensor
from wanbed.workloads.compute.device_settings import DeviceSettings, TrainingDevice
from wanbed.workloads.compute.flat_parameters import FlatParameters
from wanbed.workloads.compute.grouped_model import GroupedModel, create_copies
from wanbed.workloads.compute.torch_work import TorchWork
from wanbed.workloads.gpt.gpt_config import GptConfig
from wanbed.workloads.gpt.gpt_stage import DTYPES, build_stage, language_loss
from wanbed.workloads.gpt.learning_config import LearningConfig
from wanbed.workloads.gpt.tokens import TokenSource
from wanbed.workloads.inference.inference_model import InferenceWork
from wanbed.workloads.schedules.action import ActionKind
from wanbed.workloads.schedules.group_by_group import group_by_group
from wanbed.workloads.serving.prefill_compute import PieceResults, PrefillCompute
from wanbed.workloads.transport.receive_buffers import BufferPool

WORK = TorchWork(
    ComputedStage(stages=2, stage=0, pipelines=2, pipeline=0, microbatches=2),
    LearningConfig(GptConfig(layers=2, hidden=16, context=8, heads=2, vocabulary=32), 1e-3, "fp32", seed=3),
    TrainingDevice("auto"),
    recompute=True,
    split_backward=True,
)
"""Small: a hostile GPU takes 0.1 ms for each kernel."""

ELEMENTS = 64
MESSAGE_BYTES = 4 * ELEMENTS
PREFILL = InferenceWork(TINY, SEED, DeviceSettings("auto"))


def training(
    work: TorchWork, gpu: HostileGpu | None, *, overlaps: bool, iterations: int = 2, buckets: int = 0
) -> HandDriven:
    """Train by hand. With ``overlaps`` messages arrive while the host waits for a GPU that computes something else."""
    arrived: deque[Callable[[], None]] = deque()

    def waits_for_each_action() -> None:
        assert gpu is None or not gpu.computing, "the next action is chosen before the GPU is idle"

    if gpu is not None:
        gpu.meanwhile = lambda: arrived.popleft()() if arrived else None
    return train_by_hand(
        work,
        iterations,
        meanwhile=arrived.append if overlaps else None,
        after_each=waits_for_each_action,
        buckets=buckets,
    )


def staging(gpu: HostileGpu | None, seed: int, steps: int = 60) -> list[bytes]:
    """Compute and stage in a random order without waiting for any kernel. Return the bytes of every message."""
    random, results = Random(seed), []
    device = CpuDevice() if gpu is None else hostile_device(gpu)
    staged = create_staging(device, {MESSAGE_BYTES: 2})
    pool = BufferPool()
    pool.prefer(staged.receive_buffer)
    total = torch.zeros(8, 8, device=device.device)
    on_their_way: list[OutgoingCopy] = []
    payloads: list[memoryview] = []

    def release(payload: memoryview) -> None:
        payload[:] = b"\xff" * payload.nbytes
        pool.give_back(payload)

    def computed(number: int) -> Tensor:
        made = torch.arange(number, number + ELEMENTS, device=device.device, dtype=torch.float32).view(8, 8)
        return (made * 2 + total) / 3

    for step in range(steps):
        match random.choice(("send", "send transposed", "fetch", "receive", "sum", "compute", "settle")):
            case "send":
                on_their_way.append(staged.outgoing(computed(step)))
            case "send transposed":
                on_their_way.append(staged.outgoing(computed(step).t()))
            case "fetch" if on_their_way:
                copy = on_their_way.pop(0)
                results.append(bytes(copy.payload()))
                copy.release()
            case "receive":
                payload = pool.take(MESSAGE_BYTES)
                as_tensor(payload, torch.float32)[:] = torch.arange(step, step + ELEMENTS)
                incoming = staged.incoming(payload, torch.float32, release)
                incoming.let_compute_wait()
                # Read by a kernel that is only enqueued when the tensor's memory is freed.
                total += incoming.tensor.view(8, 8).sqrt()
                payloads.append(payload)
            case "sum":
                summed = staged.outgoing(total)
                before = total * 3
                as_tensor(summed.payload(), torch.float32).div_(2)
                staged.take_back(total, summed)
                on_their_way.append(staged.outgoing(before))
            case "compute":
                total += computed(step)
            case "settle":
                staged.settle()
    for copy in on_their_way:
        results.append(bytes(copy.payload()))
        copy.release()
    results.append(bytes(staged.outgoing(total).payload()))
    return results


def swapping(
    gpu: HostileGpu | None, sizes: tuple[int, ...], precision: str = "fp32", iterations: int = 2
) -> tuple[list[bytes], list[float]]:
    """Swap a model's groups without waiting for any kernel. Return each iteration's gradients, and the losses."""
    microbatches, learning = 2, WORK.learning
    config = replace(learning.model, layers=sum(sizes))
    device = CpuDevice() if gpu is None else hostile_device(gpu)
    copies = create_copies(device)
    host = FlatParameters(
        build_stage(config, 0, 1, learning.seed, DTYPES[precision]), learning.learning_rate, copies.host_memory
    )
    source = TokenSource(config, learning.seed)
    batches = [
        [tuple(each.to(device.device) for each in source.batch(iteration, 0, microbatch)) for microbatch in range(2)]
        for iteration in range(iterations)
    ]
    iteration = 0
    model = GroupedModel(
        config,
        host,
        sizes,
        copies,
        microbatches=microbatches,
        loss=lambda output, microbatch: language_loss(output, batches[iteration][microbatch][1]) / microbatches,
    )
    gradients, losses = [], []
    order = group_by_group(len(sizes), microbatches).order(0)
    for iteration in range(iterations):
        model.begin()
        for action in order:
            group, microbatch = action.chunk, action.microbatch
            model.enter(group, backward=action.kind is not ActionKind.FORWARD)
            match action.kind:
                case ActionKind.FORWARD:
                    losses.append(
                        model.forward(group, microbatch, None if group else batches[iteration][microbatch][0])
                    )
                case ActionKind.RECOMPUTE:
                    model.recompute(group, microbatch)
                case _:
                    model.backward(group, microbatch)
                    model.leave(group)
        model.finish()
        gradients.append(bytes(as_bytes(host.gradients)))
        host.update()
    return gradients, [loss.item() for loss in losses if loss is not None]


def prefill(requests: int = 2) -> list[tuple[PieceResults, PieceResults]]:
    """Prefill prompts, cut into pieces and layers that alternate, over the two stages of a model."""
    split = TINY.layers // 2
    stages = [PrefillCompute(PREFILL, range(split)), PrefillCompute(PREFILL, range(split, TINY.layers))]
    counts = [split, TINY.layers - split]
    results = []
    for chunk, (prior, tokens) in enumerate(((0, 9), (9, 1), (10, 10))):
        pieces = [
            [Piece(request, stage, chunk, tokens, prior, counts[stage], chunk == 2, 20) for stage in range(2)]
            for request in range(requests)
        ]
        for _ in range(counts[0]):
            for first, _ in pieces:
                stages[0].run_layer(LayerRun(first, 1, 1, 0, 1, tokens, prior))
        for first, second in pieces:
            made = stages[0].take_results(first)
            stages[1].input_arrived(first.request, chunk, memoryview(bytearray(made.activation_bytes)))
            for _ in range(counts[1]):
                stages[1].run_layer(LayerRun(second, 1, 1, 0, 1, tokens, prior))
            results.append((made, stages[1].take_results(second)))
    return results


WORKS = (WORK, changed(WORK, split_backward=False, recompute=False))

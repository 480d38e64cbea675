"""Training and prefill share a GPU that does whatever CUDA allows: both compute what they compute alone on a CPU."""

import os
import threading
import time
from collections.abc import Callable
from functools import cache
from random import Random
from select import select

import pytest

from tests.support.workloads.changed import changed
from tests.support.workloads.hostile_gpu.on_hostile_gpu import EACH_ORDER, EACH_SEED, on_hostile_gpu
from tests.support.workloads.hostile_gpu.streams import Order
from tests.support.workloads.one_thread import one_thread
from tests.support.workloads.reference_llama import TINY
from tests.workloads.compute.hostile.programs import PREFILL, WORK, prefill
from tests.workloads.serving.test_computed_gpu import filler
from wanbed.workloads.bubbletea.messages import Piece, PieceDone
from wanbed.workloads.compute.torch_compute import TorchCompute
from wanbed.workloads.inference.decode import SequenceDecoder
from wanbed.workloads.schedules.action import Action, ActionKind
from wanbed.workloads.serving.computed_gpu import ComputedGpu
from wanbed.workloads.serving.prefill_compute import PieceResults, PrefillCompute

PATIENCE_S = 60
ITERATIONS = 2
REQUESTS = 2
ALONE = changed(WORK, stages=1, pipelines=1, split_backward=False)
CUTS = ((0, 9), (9, 11))


_one_thread = pytest.fixture(autouse=True)(one_thread)


class Sharing:
    """One GPU, a model of one stage that trains on it, and prompts to prefill in its bubbles."""

    def __init__(self) -> None:
        self.gpu = ComputedGpu(0, filler(), PrefillCompute(PREFILL, range(TINY.layers)), time.monotonic_ns)
        self.training = TorchCompute(ALONE, lambda payload: None, self.gpu)
        self.pieces = {
            (request, chunk): Piece(request, 0, chunk, tokens, prior, TINY.layers, chunk == len(CUTS) - 1, 20)
            for request in range(REQUESTS)
            for chunk, (prior, tokens) in enumerate(CUTS)
        }
        self.results: dict[tuple[int, int], PieceResults] = {}
        for piece in self.pieces.values():
            self.gpu.enqueue(piece)

    def prefill_layer(self) -> None:
        """What the worker's thread does when it is woken."""
        for done in self.gpu.advance():
            if isinstance(done, PieceDone):
                key = done.request, done.chunk
                self.results[key] = self.gpu.take_results(self.pieces[key])

    def train(self, bubble: Callable[[], None]) -> tuple[list[float | None], dict[str, bytes]]:
        losses = []
        for iteration in range(ITERATIONS):
            self.training.begin(iteration)
            for kind in (ActionKind.FORWARD, ActionKind.RECOMPUTE, ActionKind.BACKWARD):
                for microbatch in range(WORK.computed.microbatches):
                    self.training.perform(Action(kind, microbatch))
                    self.gpu.idle()
                    bubble()
            self.training.update()
            self.gpu.idle()
            losses.append(self.training.loss())
            self.training.resolve()
        gradients = self.training.named_gradients()
        return losses, {name: gradient.tobytes() for name, gradient in gradients.items()}


def alternately(seed: int) -> tuple[object, object]:
    """Train, with a random number of layers in each bubble, and the rest of them after training."""
    sharing, random = Sharing(), Random(seed)

    def bubble() -> None:
        for _ in range(random.randrange(4)):
            sharing.prefill_layer()

    trained = sharing.train(bubble)
    for _ in range(len(sharing.pieces) * TINY.layers):
        sharing.prefill_layer()
    return trained, sharing.results


@cache
def on_the_cpu() -> tuple[object, object]:
    return alternately(0)


@pytest.mark.parametrize(("order", "seed"), EACH_ORDER)
def test_training_and_prefill_in_its_bubbles_compute_as_on_the_cpu(order: Order, seed: int) -> None:
    expected = on_the_cpu()
    with on_hostile_gpu(order, seed):
        assert alternately(seed) == expected


@pytest.mark.parametrize("seed", EACH_SEED)
def test_training_and_the_worker_may_use_the_gpu_from_their_own_threads(seed: int) -> None:
    expected = on_the_cpu()
    with on_hostile_gpu(Order.RANDOM, seed):
        sharing = Sharing()

        def work() -> None:
            while len(sharing.results) < len(sharing.pieces) and select([sharing.gpu.news], [], [], PATIENCE_S)[0]:
                os.eventfd_read(sharing.gpu.news)
                sharing.prefill_layer()

        worker = threading.Thread(target=work)
        worker.start()
        trained = sharing.train(lambda: None)
        worker.join(PATIENCE_S)
    assert (trained, sharing.results) == expected


@pytest.mark.parametrize(("order", "seed"), EACH_ORDER)
def test_prompts_through_two_stages_are_prefilled_as_on_the_cpu(order: Order, seed: int) -> None:
    expected = prefill()
    with on_hostile_gpu(order, seed):
        assert prefill() == expected


def decoded() -> list[int]:
    made = [each for pair in prefill(1) for each in pair]
    decoder = SequenceDecoder(PREFILL)
    split = TINY.layers // 2
    for number, part in enumerate(made):
        layers = range(split) if number % 2 == 0 else range(split, TINY.layers)
        decoder.add_cache_part(0, layers, number // 2, memoryview(bytearray(part.cache)), part.first_token)
    decoder.begin(0, 4)
    while decoder.busy:
        decoder.step()
    return decoder.tokens[0]


@pytest.mark.parametrize("order", [Order.LAZY, Order.RANDOM])
def test_the_decode_host_computes_the_same_tokens(order: Order) -> None:
    expected = decoded()
    assert len(expected) == 4
    with on_hostile_gpu(order):
        assert decoded() == expected

"""GPUs whose layers are computed: training's waits, and the results of prompts that it interrupts anywhere."""

import threading
from collections.abc import Iterator, Sequence
from functools import cache
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.until import until_within
from tests.support.workloads.one_thread import one_thread
from tests.support.workloads.reference_llama import SEED, TINY, one_shot
from wanbed.workloads.bubbletea.bubble_filler import BubbleFiller, LayerRun
from wanbed.workloads.bubbletea.bubble_forecast import BubbleForecast
from wanbed.workloads.bubbletea.messages import Piece, PieceDone
from wanbed.workloads.bubbletea.prefill_profile import PrefillProfile
from wanbed.workloads.bubbletea.prefill_settings import FillPolicy, PrefillSettings
from wanbed.workloads.compute.device_settings import DeviceSettings
from wanbed.workloads.inference.decode import SequenceDecoder
from wanbed.workloads.inference.inference_model import InferenceWork
from wanbed.workloads.serving.computed_gpu import ComputedGpu
from wanbed.workloads.serving.prefill_compute import PieceResults, PrefillCompute, prompt_tokens
from wanbed.workloads.serving.shared_gpu import PrefillSpan

MS = 1_000_000

PATIENCE_S = 60

PROFILE = PrefillProfile(0.0, 1e4, 0.0, "test", measured=False)

WORK = InferenceWork(TINY, SEED, DeviceSettings("cpu"))

PIECE = Piece(request=7, stage=0, chunk=0, tokens=100, prior_tokens=0, layers=4, last=True, prompt_tokens=100)


class Clock:
    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


class SlowLayers:
    """Replaces torch: each layer begins when it is run, and ends when the test releases it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.begun, self.may_end = threading.Semaphore(0), threading.Semaphore(0)
        self.fails = False

    def run_layer(self, _run: LayerRun) -> tuple[int, int]:
        start_ns = self._clock.now_ns
        self.begun.release()
        assert self.may_end.acquire(timeout=PATIENCE_S)
        if self.fails:
            raise RuntimeError("out of memory")
        return start_ns, self._clock.now_ns


def filler(policy: FillPolicy = FillPolicy.GREEDY, warmup: int = 2, profile: PrefillProfile = PROFILE) -> BubbleFiller:
    of_gpu = PrefillSettings(10**10, policy, switch_ns=0, warmup_iterations=warmup)
    return BubbleFiller(BubbleForecast(of_gpu), profile, policy)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def layers(clock: Clock) -> SlowLayers:
    return SlowLayers(clock)


@pytest.fixture
def gpu(clock: Clock, layers: SlowLayers) -> ComputedGpu:
    return ComputedGpu(3, filler(), layers, clock)  # type: ignore[arg-type]


@pytest.fixture
def threads() -> Iterator[list[threading.Thread]]:
    started: list[threading.Thread] = []
    yield started
    for thread in started:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def beside(threads: list[threading.Thread], work: object) -> threading.Thread:
    thread = threading.Thread(target=work)  # type: ignore[arg-type]
    threads.append(thread)
    thread.start()
    return thread


def test_training_waits_for_the_layer_under_way_and_for_no_other(
    clock: Clock, layers: SlowLayers, gpu: ComputedGpu, threads: list[threading.Thread]
) -> None:
    gpu.enqueue(PIECE)
    gpu.idle()
    worker = beside(threads, gpu.advance)
    assert layers.begun.acquire(timeout=PATIENCE_S)
    clock.now_ns = 3 * MS
    training = beside(threads, gpu.claim)
    until_within(PATIENCE_S, lambda: gpu._claimed)
    clock.now_ns = 8 * MS
    layers.may_end.release()
    worker.join(PATIENCE_S)
    training.join(PATIENCE_S)
    counts = gpu.counts()
    assert (counts["deadline_overruns"], counts["overrun_ns"]) == (1, 5 * MS)
    assert gpu.take_spans() == [PrefillSpan(7, 0, 0, 8 * MS)]
    gpu.began(8 * MS, 0, "forward", 0)
    assert gpu.advance() == []
    assert not layers.begun.acquire(blocking=False)


def test_training_that_comes_between_layers_waits_for_nothing(
    clock: Clock, layers: SlowLayers, gpu: ComputedGpu
) -> None:
    gpu.enqueue(PIECE)
    gpu.idle()
    layers.may_end.release()
    gpu.advance()
    clock.now_ns = MS
    gpu.claim()
    assert gpu.counts()["deadline_overruns"] == 0


def test_a_layer_that_fails_does_not_hold_up_training(
    clock: Clock, layers: SlowLayers, gpu: ComputedGpu, threads: list[threading.Thread]
) -> None:
    layers.fails = True
    layers.may_end.release()
    gpu.enqueue(PIECE)
    gpu.idle()
    with pytest.raises(RuntimeError, match="out of memory"):
        gpu.advance()
    beside(threads, gpu.claim).join(PATIENCE_S)
    assert gpu.take_spans() == []


def test_a_piece_is_done_when_all_of_its_layers_have_been_computed_each_a_span(
    clock: Clock, layers: SlowLayers, gpu: ComputedGpu
) -> None:
    gpu.enqueue(PIECE)
    gpu.idle()
    for layer in range(4):
        clock.now_ns = layer * MS
        layers.may_end.release()
        text = gpu.advance()
    assert text == [PieceDone(7, 0, 0, 0, 3 * MS)]
    assert len(gpu.take_spans()) == 0  # The clock stood still in each of them.


def test_planned_layers_begin_only_where_their_profile_says_that_they_end_in_time(
    clock: Clock, layers: SlowLayers
) -> None:
    planned = ComputedGpu(3, filler(FillPolicy.PLANNED), layers, clock)  # type: ignore[arg-type]
    planned.enqueue(PIECE)
    for iteration in range(4):
        clock.now_ns = iteration * 50 * MS
        planned.claim()
        planned.began(clock.now_ns, iteration, "forward", 0)
        clock.now_ns += 10 * MS
        planned.ended(clock.now_ns)
        planned.idle()
    # A layer takes 1 ms, and training is expected back after 200.
    clock.now_ns = 199 * MS + 1
    planned.advance()
    assert not layers.begun.acquire(blocking=False)
    clock.now_ns = 199 * MS
    layers.may_end.release()
    planned.advance()
    assert layers.begun.acquire(blocking=False)


def test_nothing_is_computed_once_it_is_stopped(layers: SlowLayers, gpu: ComputedGpu) -> None:
    gpu.enqueue(PIECE)
    gpu.idle()
    gpu.stop()
    assert gpu.advance() == []
    assert not layers.begun.acquire(blocking=False)


def test_an_activation_without_bytes_is_refused(gpu: ComputedGpu) -> None:
    with pytest.raises(ValueError, match="request 1: chunk 2 came without its activation"):
        gpu.input_arrived(1, 2, None)


@cache
def computes(depth: int) -> list[PrefillCompute]:
    counts = TINY.stage_layers(depth)
    starts = [sum(counts[:stage]) for stage in range(depth)]
    return [PrefillCompute(WORK, range(start, start + count)) for start, count in zip(starts, counts, strict=True)]


@cache
def decoder() -> SequenceDecoder:
    return SequenceDecoder(WORK)


class Watch:
    """A GPU's computation that records the layers that it runs."""

    def __init__(self, compute: PrefillCompute) -> None:
        self._compute = compute
        self.input_arrived, self.take_results = compute.input_arrived, compute.take_results
        self.runs: list[LayerRun] = []

    def run_layer(self, run: LayerRun) -> tuple[int, int]:
        self.runs.append(run)
        return self._compute.run_layer(run)


class Group:
    """GPUs of one group and the trainings that interrupt them, all in one thread and at random moments."""

    def __init__(self, depth: int, seed: int, policy: FillPolicy, profile: PrefillProfile = PROFILE) -> None:
        self.clock = Clock()
        self.computes = computes(depth)
        self.gpus = [
            ComputedGpu(stage, filler(policy, warmup=0, profile=profile), compute, self.clock)
            for stage, compute in enumerate(self.computes)
        ]
        self.pieces: dict[tuple[int, int, int], Piece] = {}
        self.made: dict[int, list[tuple[range, int, PieceResults]]] = {}
        self._random = Random(seed)
        self._training = [0] * depth

    def queue(self, request: int, chunks: Sequence[int]) -> None:
        """Cut a prompt into chunks of the given sizes."""
        counts, prior = TINY.stage_layers(len(self.gpus)), 0
        for number, tokens in enumerate(chunks):
            last = number == len(chunks) - 1
            for stage, gpu in enumerate(self.gpus):
                piece = Piece(request, stage, number, tokens, prior, counts[stage], last, sum(chunks))
                self.pieces[request, stage, number] = piece
                gpu.enqueue(piece)
            prior += tokens

    def run(self) -> None:
        """Run until all pieces are done. Each event is a claim and an action of training, or some layers on a GPU."""
        for gpu in self.gpus:
            gpu.idle()
        while self.pieces:
            stage = self._random.randrange(len(self.gpus))
            gpu = self.gpus[stage]
            self.clock.now_ns += self._random.randrange(3 * MS)
            if self._random.random() < 0.3:
                self._train(stage)
            for _ in range(self._random.randrange(4)):
                self.clock.now_ns += MS // 10
                for done in gpu.advance():
                    if isinstance(done, PieceDone):
                        self._pass_on(self.pieces.pop((done.request, stage, done.chunk)))

    def run_in_periodic_bubbles(self, bubble_ns: int) -> list[LayerRun]:
        """Run until all pieces are done, in equal bubbles. Return the computed layers of all stages."""
        watches = [Watch(compute) for compute in self.computes]
        for gpu, watch in zip(self.gpus, watches, strict=True):
            gpu._prefill = watch  # type: ignore[assignment]
        while self.pieces:
            for stage, gpu in enumerate(self.gpus):
                self._train(stage)
                for done in gpu.advance():
                    if isinstance(done, PieceDone):
                        self._pass_on(self.pieces.pop((done.request, stage, done.chunk)))
            self.clock.now_ns += bubble_ns - (len(self.gpus) - 1) * MS
        return [run for watch in watches for run in watch.runs]

    def _train(self, stage: int) -> None:
        gpu, iteration = self.gpus[stage], self._training[stage]
        self._training[stage] += 1
        gpu.claim()
        gpu.began(self.clock.now_ns, iteration, "forward", 0)
        self.clock.now_ns += MS
        gpu.ended(self.clock.now_ns)
        gpu.idle()

    def _pass_on(self, piece: Piece) -> None:
        made = self.gpus[piece.stage].take_results(piece)
        counts = TINY.stage_layers(len(self.gpus))
        first = sum(counts[: piece.stage])
        layers = range(first, first + counts[piece.stage])
        self.made.setdefault(piece.request, []).append((layers, piece.chunk, made))
        if piece.stage + 1 < len(self.gpus):
            moved = memoryview(bytearray(made.activation_bytes))
            self.gpus[piece.stage + 1].input_arrived(piece.request, piece.chunk, moved)


def assert_equals_one_shot(group: Group, request: int, tokens: int) -> None:
    """Assert keys and values equal within 1e-5, and each token as likely as the most likely one except for rounding."""
    prompt = prompt_tokens(SEED, request, tokens, TINY.vocabulary)
    expected = one_shot(prompt)
    by_layer: dict[int, list[np.ndarray[tuple[int, ...], np.dtype[np.float32]]]] = {}
    for layers, _, made in sorted(group.made[request], key=lambda part: (part[0].start, part[1])):
        shape = len(layers), 2, -1, TINY.kv_heads, TINY.head_dim
        for layer, part in zip(layers, np.frombuffer(made.cache, np.float32).reshape(shape), strict=True):
            by_layer.setdefault(layer, []).append(part)
    for layer in range(TINY.layers):
        both = np.stack([expected.keys[layer], expected.values[layer]])
        np.testing.assert_allclose(np.concatenate(by_layer[layer], axis=1), both, rtol=1e-5, atol=1e-5)
    host = decoder()
    for layers, chunk, made in group.made[request]:
        host.add_cache_part(request, layers, chunk, memoryview(bytearray(made.cache)), made.first_token)
    host.begin(request, 4)
    while host.busy:
        host.step()
    found = host.tokens.pop(request)
    assert len(found) == 4
    logits = one_shot([*prompt, *found]).logits[tokens - 1 :]
    for token, of_all in zip(found, logits, strict=False):
        assert of_all[token] == pytest.approx(of_all.max(), abs=1e-5)


_one_thread = pytest.fixture(autouse=True)(one_thread)


@settings(max_examples=25, deadline=None)
@given(
    depth=st.sampled_from([1, 2, 4]),
    prompts=st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=4), min_size=1, max_size=3),
    seed=st.integers(0, 2**32),
    policy=st.sampled_from([FillPolicy.GREEDY, FillPolicy.PLANNED]),
)
def test_prompts_in_random_bubbles_give_the_caches_and_tokens_of_one_shot_prefills(
    depth: int, prompts: list[list[int]], seed: int, policy: FillPolicy
) -> None:
    group = Group(depth, seed, policy)
    for request, chunks in enumerate(prompts):
        group.queue(request, chunks)
    group.run()
    for request, chunks in enumerate(prompts):
        assert_equals_one_shot(group, request, sum(chunks))


@pytest.mark.parametrize("depth", [1, 2])
def test_chunks_that_no_bubble_holds_are_cut_and_come_to_the_same(depth: int) -> None:
    bubble_ns = 8 * MS
    a_millisecond_a_token = PrefillProfile(0.0, 1e6, 0.0, "test", measured=False)
    group = Group(depth, 0, FillPolicy.PLANNED, a_millisecond_a_token)
    group.queue(0, [12, 20, 3])
    runs = group.run_in_periodic_bubbles(bubble_ns)
    assert max(run.tokens for run in runs) <= 8
    assert_equals_one_shot(group, 0, 35)

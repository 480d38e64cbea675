"""A DC in which training is a pattern with jitter, and everything else takes exactly its configured time.

It drives the controller and the GPUs' fillers, and keeps its own account of memory and of what training went through.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from wanbed.flow.event_queue import EventQueue
from wanbed.workloads.bubbletea.bubble_filler import BubbleFiller, LayerRun
from wanbed.workloads.bubbletea.bubble_forecast import BubbleForecast
from wanbed.workloads.bubbletea.controller import PrefillController
from wanbed.workloads.bubbletea.messages import Piece, QueuePiece, from_document, to_document
from wanbed.workloads.bubbletea.prefill_group import GroupGpus, SharedGpuMemory, working_bytes
from wanbed.workloads.bubbletea.prefill_profile import PrefillProfile
from wanbed.workloads.bubbletea.prefill_settings import FillPolicy, PrefillSettings
from wanbed.workloads.bubbletea.request import Request
from wanbed.workloads.inference.inference_model import INFERENCE_MODELS, InferenceModel

MS = 1_000_000
LLAMA = INFERENCE_MODELS["llama-8b"]
A100 = PrefillProfile(fixed_ns=60_000, per_token_ns=2_500, per_token_pair_ns=0.45, source="toy", measured=False)
"""About 1.4 ms for one layer of llama-8b on 512 tokens."""
LARGE = SharedGpuMemory(80 * 10**9, 20 * 10**9)


@dataclass(frozen=True)
class Pattern:
    """One GPU's training iteration: alternating idle and busy times."""

    actions: tuple[tuple[int, int], ...]
    jitter_ns: int = 0

    @property
    def period_ns(self) -> int:
        return sum(idle_ns + busy_ns for idle_ns, busy_ns in self.actions)

    @property
    def idle_ns(self) -> int:
        return sum(idle_ns for idle_ns, _ in self.actions)


def typical(seed: int, jitter_ns: int = 0) -> Pattern:
    """2.7 s with bubbles as they are between forwards and backwards of the reference configuration."""
    chance = Random(seed)
    bubbles = [chance.randint(20 * MS, 50 * MS) for _ in range(chance.randint(10, 25))]
    bubbles += [chance.randint(100 * MS, 250 * MS) for _ in range(2)]
    chance.shuffle(bubbles)
    left_ns = 2_700 * MS - sum(bubbles)
    return Pattern(tuple((idle_ns, left_ns // len(bubbles)) for idle_ns in bubbles), jitter_ns)


@dataclass
class Gpu:
    number: int
    filler: BubbleFiller
    memory: SharedGpuMemory
    pattern: Pattern | None
    chance: Random
    iteration: int = 0
    index: int = -1
    ideal_ns: int = 0
    training: bool = False
    run: LayerRun | None = None
    filled: list[tuple[int, int, int]] = field(default_factory=list)
    earliness: list[int] = field(default_factory=list)
    margins: list[int] = field(default_factory=list)
    delayed_ns: int = 0
    used_bytes: int = 0
    peak_bytes: int = 0


class ToyDatacenter:
    def __init__(
        self,
        settings: PrefillSettings,
        groups: Sequence[Sequence[Pattern | None]],
        *,
        model: InferenceModel = LLAMA,
        profile: PrefillProfile = A100,
        memory: SharedGpuMemory = LARGE,
        iterations: int = 12,
        kv_ns: int = 20 * MS,
        seed: int = 0,
    ) -> None:
        self.settings, self.model, self.iterations, self.kv_ns = settings, model, iterations, kv_ns
        self.events = EventQueue()
        self.gpus: dict[int, Gpu] = {}
        self.place: dict[int, tuple[int, ...]] = {}
        parts = []
        for patterns in groups:
            numbers = tuple(range(len(self.gpus), len(self.gpus) + len(patterns)))
            layers = model.stage_layers(len(patterns))
            pooled = patterns[0] is None
            for stage, (number, pattern) in enumerate(zip(numbers, patterns, strict=True)):
                forecast = BubbleForecast(settings)
                policy = FillPolicy.GREEDY if pooled else settings.policy
                gpu = Gpu(number, BubbleFiller(forecast, profile, policy), memory, pattern, Random(f"{seed} {number}"))
                weights = model.weight_bytes(layers[stage], embedding=stage == 0, head=stage == len(patterns) - 1)
                gpu.used_bytes = memory.training_bytes + weights + working_bytes(model, settings.chunk_tokens)
                self.gpus[number] = gpu
                self.place[number] = numbers
                if pattern is None:
                    gpu.filler.training_over()
                else:
                    self.events.at(0, self._next_action, gpu)
            parts.append(GroupGpus(numbers, (memory,) * len(patterns), pooled))
        self.controller = PrefillController("dc", parts, model, profile, settings)
        self._pieces: dict[tuple[int, int, int], tuple[Piece, tuple[int, ...]]] = {}
        self.most_held = 0

    def run(self, requests: Sequence[Request]) -> None:
        for request in requests:
            self.events.at(request.arrival_ns, self._arrive, request)
        while self.events.handle_next_instant():
            assert self.controller.held <= self.settings.hold_limit

    @property
    def overruns(self) -> int:
        return sum(gpu.filler.deadline_overruns for gpu in self.gpus.values())

    @property
    def delayed_ns(self) -> int:
        return sum(gpu.delayed_ns for gpu in self.gpus.values())

    def filled_ns(self, gpu: int, from_ns: int, until_ns: int) -> int:
        return sum(max(0, min(end, until_ns) - max(start, from_ns)) for start, end, _ in self.gpus[gpu].filled)

    def _use(self, gpu: Gpu, size_bytes: int) -> None:
        gpu.used_bytes += size_bytes
        gpu.peak_bytes = max(gpu.peak_bytes, gpu.used_bytes)
        assert gpu.used_bytes <= gpu.memory.total_bytes, "more memory than there is"

    def _obey(self, commands: Sequence[QueuePiece]) -> None:
        self.most_held = max(self.most_held, self.controller.held)
        for command in commands:
            piece = command.piece
            self._pieces[piece.request, piece.stage, piece.chunk] = piece, self.place[command.gpu]
            self.gpus[command.gpu].filler.enqueue(piece)
        for number in {command.gpu for command in commands}:
            self._fill(self.gpus[number])

    def _arrive(self, now_ns: int, request: Request) -> None:
        self._obey(self.controller.arrived(now_ns, request))

    # Training

    def _next_action(self, now_ns: int, gpu: Gpu) -> None:
        assert gpu.pattern is not None
        gpu.index += 1
        if gpu.index == len(gpu.pattern.actions):
            gpu.index = 0
            gpu.iteration += 1
        if gpu.iteration == self.iterations:
            gpu.filler.training_over()
            report = gpu.filler.forecast.report(gpu.number)
            assert report is not None
            self._obey(self.controller.bubbles_reported(now_ns, report))
            self._fill(gpu)
            return
        before = gpu.pattern.actions[: gpu.index + 1]
        offset_ns = sum(idle + busy for idle, busy in before) - before[-1][1]
        jitter_ns = gpu.chance.randint(0, gpu.pattern.jitter_ns)
        wanted_ns = max(now_ns, gpu.iteration * gpu.pattern.period_ns + offset_ns + jitter_ns)
        self.events.at(wanted_ns, self._want, gpu)

    def _want(self, now_ns: int, gpu: Gpu) -> None:
        forecast = gpu.filler.forecast
        if forecast.bubble_end(0) > 0:
            gpu.earliness.append(forecast.bubble_end(0) + forecast.next_margin_ns - now_ns)
            gpu.margins.append(forecast.next_margin_ns)
        release_ns = gpu.filler.training_wants(now_ns)
        gpu.training = True
        gpu.delayed_ns += release_ns - now_ns
        if gpu.run is not None:
            gpu.run = None
            self._end_run(release_ns, gpu) if release_ns == now_ns else self.events.at(release_ns, self._end_run, gpu)
        self.events.at(release_ns, self._start, gpu)

    def _start(self, now_ns: int, gpu: Gpu) -> None:
        assert gpu.pattern is not None
        gpu.filler.training_started(now_ns, gpu.iteration, ("forward", gpu.index))
        if gpu.index == 0 and (report := gpu.filler.forecast.report(gpu.number)) is not None:
            report_again = from_document(to_document(report))
            assert report_again == report
            self._obey(self.controller.bubbles_reported(now_ns, report))
        self.events.at(now_ns + gpu.pattern.actions[gpu.index][1], self._end, gpu)

    def _end(self, now_ns: int, gpu: Gpu) -> None:
        gpu.training = False
        gpu.filler.training_ended(now_ns, gpu.iteration, ("forward", gpu.index))
        self._next_action(now_ns, gpu)
        self._fill(gpu)

    # Prefill

    def _fill(self, gpu: Gpu) -> None:
        run = gpu.filler.next_run(self.events.now_ns, idle=not gpu.training)
        if run is not None:
            assert not gpu.training
            gpu.run = run
            self.events.at(run.end_ns, self._run_passed, (gpu, run))

    def _run_passed(self, now_ns: int, what: tuple[Gpu, LayerRun]) -> None:
        gpu, run = what
        if gpu.run is run:
            gpu.run = None
            self._end_run(now_ns, gpu)

    def _end_run(self, now_ns: int, gpu: Gpu) -> None:
        run = gpu.filler.run_under_way
        assert run is not None
        if run.layers:
            gpu.filled.append((run.start_ns, now_ns, run.piece.request))
        done = gpu.filler.run_ended(now_ns)
        if done is not None:
            assert from_document(to_document(done)) == done
            piece, group = self._pieces[done.request, done.stage, done.chunk]
            activation = self.model.activation_bytes(piece.tokens)
            self._use(gpu, self.model.kv_bytes(piece.layers, piece.tokens))
            following = group[piece.stage + 1] if piece.stage + 1 < len(group) else None
            if piece.stage > 0:
                self._use(gpu, -activation)
            if following is not None:
                self._use(gpu, activation)
                there_ns = now_ns + self.settings.transfer_ns(activation)
                self.events.at(there_ns, self._activation, (piece, gpu, self.gpus[following]))
            self._obey(self.controller.piece_done(now_ns, done))
            if following is None and piece.last:
                self.events.at(now_ns + self.kv_ns, self._kv_moved, piece)
        self._fill(gpu)

    def _activation(self, now_ns: int, what: tuple[Piece, Gpu, Gpu]) -> None:
        piece, sender, receiver = what
        activation = self.model.activation_bytes(piece.tokens)
        self._use(sender, -activation)
        self._use(receiver, activation)
        receiver.filler.input_arrived(piece.request, piece.chunk)
        self._obey(self.controller.activation_arrived(now_ns, piece.request, piece.stage + 1, piece.chunk))
        self._fill(receiver)

    def _kv_moved(self, now_ns: int, last: Piece) -> None:
        group = self._pieces[last.request, last.stage, last.chunk][1]
        tokens = last.prior_tokens + last.tokens
        for stage, number in enumerate(group):
            self._use(self.gpus[number], -self.model.kv_bytes(self._pieces[last.request, stage, 0][0].layers, tokens))
        self._obey(self.controller.kv_moved(now_ns, last.request))

"""Compute the prefill of one GPU's layers with torch, for all prompts under way.

The tokens of a prompt are drawn at random, because a trace gives only their number.
"""

from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from torch import Tensor

from wanbed.workloads.bubbletea.bubble_filler import LayerRun
from wanbed.workloads.bubbletea.messages import Piece
from wanbed.workloads.compute.device.torch_device import as_bytes, configured_device
from wanbed.workloads.inference.decode import greedy_token
from wanbed.workloads.inference.inference_model import InferenceWork
from wanbed.workloads.inference.inference_stage import InferenceStage, PrefillChunk
from wanbed.workloads.inference.key_value_cache import KVCache

_PROMPTS = 1
"""Separates this random stream from others with the same seed."""


def prompt_tokens(seed: int, request: int, tokens: int, vocabulary: int) -> list[int]:
    """Draw ``tokens`` tokens uniformly from the vocabulary. Equal arguments give equal tokens in every process."""
    random = np.random.default_rng((seed, _PROMPTS, request))
    drawn: list[int] = random.integers(vocabulary, size=tokens).tolist()
    return drawn


_WARM_UP_CHUNKS = 2
"""The chunks of the warm-up: a first one, and one after prior tokens, which runs other kernels."""


@dataclass(frozen=True)
class PieceResults:
    """The results of a piece.

    ``activation`` has the bytes for the next stage, None at the last stage. ``cache`` is the piece's part of the KV
    cache, from ``KVCache.chunk_bytes``. ``first_token`` is set by a prompt's last piece at the last stage, else None.
    """

    activation: memoryview | None
    cache: memoryview
    first_token: int | None

    @property
    def activation_bytes(self) -> memoryview:
        """The activation, which every stage but the last has."""
        assert self.activation is not None
        return self.activation


@dataclass(slots=True)
class _Sequence:
    """One request on this GPU. ``chunk`` is the one being computed, ``outputs`` has the outputs so far by piece."""

    cache: KVCache
    chunk: PrefillChunk | None = None
    outputs: dict[int, list[Tensor]] = field(default_factory=dict)


class PrefillCompute:
    """Computes the layers ``layers`` of the work's model, beside training's computation.

    On a GPU everything runs on a separate stream. A sequence has a cache from its first layer here until the results of
    its last piece have been taken. The constructor creates the weights and runs chunks of ``warm_up_tokens``, because
    the kernels and their preparation depend on the size. After that, all calls must come from one thread.

    The number of torch's threads and the choice of kernels are set for the whole process. Raises ValueError if the
    device is not available, or if the model does not have these layers.
    """

    def __init__(self, work: InferenceWork, layers: range, warm_up_tokens: int = 8) -> None:
        self._work = work
        self._device = configured_device(work.device)
        self._stream = self._device.own_stream()
        self._sequences: dict[int, _Sequence] = {}
        self._inputs: dict[tuple[int, int], Tensor] = {}
        with self._stream():
            self._stage = InferenceStage(
                work.model, layers, seed=work.seed, device=self._device, precision=work.precision
            )
        self.time_chunks(warm_up_tokens, _WARM_UP_CHUNKS)

    def input_arrived(self, request: int, chunk: int, payload: memoryview) -> None:
        """Keep the activation from the previous stage, on the CPU without a copy of ``payload``."""
        with self._stream():
            self._inputs[request, chunk] = self._stage.hidden_states(payload)

    def run_layer(self, run: LayerRun) -> tuple[int, int]:
        """Compute the next layer of the run's tokens. Return its start and end in CLOCK_MONOTONIC nanoseconds.

        Raises ValueError if the tokens are not the next ones of their sequence, KeyError if they have not arrived.
        """
        piece = run.piece
        with self._stream():
            if piece.request not in self._sequences:
                self._sequences[piece.request] = _Sequence(self._stage.new_cache(piece.prompt_tokens))
            sequence = self._sequences[piece.request]
            if sequence.chunk is None:
                inputs = self._inputs_of(piece, run.prior_tokens, run.tokens)
                sequence.chunk = self._stage.begin_chunk(sequence.cache, inputs, run.prior_tokens)
            chunk = sequence.chunk
            times_ns = self._device.timed(partial(_step, chunk))
        if not chunk.layers_left:
            sequence.outputs.setdefault(piece.chunk, []).append(chunk.outputs)
            sequence.chunk = None
        return times_ns

    def take_results(self, piece: Piece) -> PieceResults:
        """Return the results of ``piece``, all of whose layers have run. A sequence's last piece frees its cache.

        Take the pieces of a sequence in order. The next piece may already have begun or ended.
        """
        sequence = self._sequences[piece.request]
        outputs = sequence.outputs.pop(piece.chunk)
        self._inputs.pop((piece.request, piece.chunk), None)
        if piece.last:
            del self._sequences[piece.request]
        activation, first_token = None, None
        with self._stream():
            if not self._stage.is_last:
                activation = as_bytes(self._device.on_host(torch.cat(outputs)))
            elif piece.last:
                first_token = greedy_token(outputs[-1])
            cache = sequence.cache.chunk_bytes(piece.prior_tokens, piece.tokens)
        return PieceResults(activation, cache, first_token)

    def time_chunks(self, tokens: int, chunks: int) -> list[int]:
        """Compute a prompt of ``chunks`` chunks of random tokens. Return each one's mean time in one layer, in ns."""
        taken_ns = []
        with self._stream():
            cache = self._stage.new_cache(tokens * chunks)
            for _ in range(chunks):
                chunk = self._stage.begin_chunk(cache, self._random_inputs(tokens), cache.tokens)
                count = chunk.layers_left
                times_ns = [self._device.timed(partial(_step, chunk)) for _ in range(count)]
                taken_ns.append(sum(end_ns - start_ns for start_ns, end_ns in times_ns) // count)
        return taken_ns

    def _inputs_of(self, piece: Piece, prior_tokens: int, tokens: int) -> Tensor:
        start = prior_tokens - piece.prior_tokens
        if self._stage.is_first:
            prompt = prompt_tokens(self._work.seed, piece.request, piece.prompt_tokens, self._work.model.vocabulary)
            return torch.tensor(prompt[prior_tokens : prior_tokens + tokens])
        return self._inputs[piece.request, piece.chunk][start : start + tokens]

    def _random_inputs(self, tokens: int) -> Tensor:
        # Not zeros: the power of matrix products, and so a GPU's clock, depends on the values.
        model = self._work.model
        generator = torch.Generator().manual_seed(self._work.seed)
        if self._stage.is_first:
            return torch.randint(model.vocabulary, (tokens,), generator=generator)
        return torch.randn(tokens, model.hidden, generator=generator).to(self._stage.dtype)


def _step(chunk: PrefillChunk) -> None:
    chunk.step()

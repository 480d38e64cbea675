"""The tokens that a model is trained on: synthetic ones from a seed, or the bytes of a text."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from wanbed.workloads.gpt.gpt_config import GptConfig
from wanbed.workloads.gpt.learnt_text import HeldOut, text_bytes

Bytes = npt.NDArray[np.uint8]

_LONGEST_STEP = 8

_HELD_OUT_SEED = 2**64
"""No training's: theirs are below 2^63."""


class TokenSource:
    """The sequences of each iteration, pipeline and microbatch, the same in every process.

    Without a ``text``, a sequence starts at a random token and continues by random steps of 1 to 8 (modulo the
    vocabulary), so that a model can learn that the next token is one of eight. With a ``text``, the name of a corpus or
    the path of a file, a sequence is a part of it from a random offset, and its tokens are the bytes modulo the
    vocabulary. With ``held_out`` no sequence of a batch has any byte that is held out.

    Raises ValueError naming the field if the seed is negative, or the text, or a part of it, is shorter than one
    sequence and the token after it; OSError if the text cannot be read.
    """

    def __init__(self, config: GptConfig, seed: int, text: str | None = None, held_out: HeldOut | None = None) -> None:
        if seed < 0:
            raise ValueError(f"seed: {seed} is negative")
        self._vocabulary = config.vocabulary
        self._length = config.context + 1
        self._seed = seed
        self._held_out = held_out
        self._learnt: Bytes | None = None
        self._kept: Bytes | None = None
        if text is not None:
            self._learnt, self._kept = _parts(text, held_out, self._length)

    def batch(self, iteration: int, pipeline: int, microbatch: int) -> tuple[Tensor, Tensor]:
        """Return the inputs and the targets (the next token of each), both (1, context) int64."""
        random = np.random.default_rng((self._seed, iteration, pipeline, microbatch))
        if self._learnt is None:
            return self._divided(self._synthetic(random))
        return self._divided(self._sequence(self._learnt, int(random.integers(self._starts(self._learnt)))))

    def evaluation_batch(self, number: int) -> tuple[Tensor, Tensor]:
        """Return held-out inputs and targets: the sequence of that number, from 0, as ``batch`` returns one.

        Those of a text begin at equal distances over its held-out part. Raise ValueError if nothing is held out.
        """
        if self._held_out is None:
            raise ValueError("held_out: None, and there is nothing to evaluate")
        if self._kept is None:
            return self._divided(self._synthetic(np.random.default_rng((_HELD_OUT_SEED, number))))
        last, steps = self._starts(self._kept) - 1, max(1, self._held_out.sequences - 1)
        return self._divided(self._sequence(self._kept, last * number // steps))

    def _starts(self, part: Bytes) -> int:
        return len(part) - self._length + 1

    def _sequence(self, part: Bytes, start: int) -> npt.NDArray[np.int64]:
        return part[start : start + self._length].astype(np.int64)

    def _synthetic(self, random: np.random.Generator) -> npt.NDArray[np.int64]:
        steps = random.integers(1, _LONGEST_STEP + 1, self._length)
        steps[0] = random.integers(self._vocabulary)
        return np.cumsum(steps)

    def _divided(self, tokens: npt.NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        sequence = torch.from_numpy(tokens % self._vocabulary).unsqueeze(0)
        return sequence[:, :-1], sequence[:, 1:]


def _parts(text: str, held_out: HeldOut | None, length: int) -> tuple[Bytes, Bytes | None]:
    """Return what is learnt of a text, and what is held out."""
    whole = text_bytes(text)
    if held_out is None:
        if len(whole) < length:
            raise ValueError(f"text: {text} holds {len(whole)} bytes, a sequence and the token after it take {length}")
        return whole, None
    held_out.check(text, len(whole), length)
    begin = held_out.first_byte(len(whole))
    return whole[:begin], whole[begin:]

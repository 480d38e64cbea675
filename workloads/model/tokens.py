"""The tokens that a model is trained on: synthetic ones from a seed, or the bytes of a text."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from workloads.model.gpt_config import GptConfig

LONGEST_STEP = 8


class TokenSource:
    """The sequences of each iteration, pipeline and microbatch, the same in every process.

    Without a ``text``, a sequence starts at a random token and continues by random steps of 1 to 8 (modulo the
    vocabulary), so that a model can learn that the next token is one of eight. With the path of a ``text``, a sequence
    is a part of the file from a random offset, and its tokens are the file's bytes modulo the vocabulary.

    Raises ValueError naming the field if the seed is negative, or the text is shorter than one sequence and the token
    after it; OSError if the text cannot be read.
    """

    def __init__(self, config: GptConfig, seed: int, text: str | None = None) -> None:
        if seed < 0:
            raise ValueError(f"seed: {seed} is negative")
        self._vocabulary = config.vocabulary
        self._length = config.context + 1
        self._seed = seed
        self._bytes = None if text is None else _bytes_of(Path(text), self._length)

    def batch(self, iteration: int, pipeline: int, microbatch: int) -> tuple[Tensor, Tensor]:
        """Return the inputs and the targets (the next token of each), both (1, context) int64."""
        random = np.random.default_rng((self._seed, iteration, pipeline, microbatch))
        if self._bytes is None:
            steps = random.integers(1, LONGEST_STEP + 1, self._length)
            steps[0] = random.integers(self._vocabulary)
            tokens = np.cumsum(steps)
        else:
            start = random.integers(len(self._bytes) - self._length + 1)
            tokens = self._bytes[start : start + self._length].astype(np.int64)
        sequence = torch.from_numpy(tokens % self._vocabulary).unsqueeze(0)
        return sequence[:, :-1], sequence[:, 1:]


def _bytes_of(text: Path, least: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    size_bytes = text.stat().st_size
    if size_bytes < least:
        raise ValueError(f"text: {text} holds {size_bytes} bytes, a sequence and the token after it take {least}")
    return np.memmap(text, dtype=np.uint8, mode="r", shape=(size_bytes,))

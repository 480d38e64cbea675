"""The tokens of a request's prompt, of which a trace tells no more than their number."""

import numpy as np

_PROMPTS = 1
"""Keeps these numbers apart from others that are drawn from the same seed."""


def prompt_tokens(seed: int, request: int, tokens: int, vocabulary: int) -> list[int]:
    """So many tokens, drawn evenly from the vocabulary: the same for whoever asks."""
    random = np.random.default_rng((seed, _PROMPTS, request))
    drawn: list[int] = random.integers(vocabulary, size=tokens).tolist()
    return drawn

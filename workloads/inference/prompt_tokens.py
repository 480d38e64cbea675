"""Draw the tokens of a request's prompt at random, because a trace gives only their number."""

import numpy as np

_PROMPTS = 1
"""Separates this random stream from others with the same seed."""


def prompt_tokens(seed: int, request: int, tokens: int, vocabulary: int) -> list[int]:
    """Draw ``tokens`` tokens uniformly from the vocabulary. Equal arguments give equal tokens in every process."""
    random = np.random.default_rng((seed, _PROMPTS, request))
    drawn: list[int] = random.integers(vocabulary, size=tokens).tolist()
    return drawn

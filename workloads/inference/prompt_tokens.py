"""Draw the tokens of a request's prompt, because a trace gives only their number."""

import numpy as np

_PROMPTS = 1
"""Keeps these numbers apart from others that are drawn from the same seed."""


def prompt_tokens(seed: int, request: int, tokens: int, vocabulary: int) -> list[int]:
    """Draw ``tokens`` tokens evenly from the vocabulary, the same for every caller."""
    random = np.random.default_rng((seed, _PROMPTS, request))
    drawn: list[int] = random.integers(vocabulary, size=tokens).tolist()
    return drawn

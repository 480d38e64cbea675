"""Cut a prompt into chunks."""

from dataclasses import dataclass
from functools import lru_cache

from wanbed.workloads.inference.inference_model import InferenceModel
from wanbed.workloads.prefill.prefill_profile import PrefillProfile
from wanbed.workloads.prefill.prefill_settings import PrefillSettings


@dataclass(frozen=True, slots=True)
class Chunk:
    """``tokens`` tokens of a prompt after ``prior_tokens``.

    One layer takes ``layer_ns``. The activation, ``activation_bytes``, moves to the next stage in ``transfer_ns``.
    """

    tokens: int
    prior_tokens: int
    layer_ns: int
    transfer_ns: int
    activation_bytes: int


class ChunkTimes:
    """Cuts prompts into chunks for one model, and computes their times by one profile."""

    def __init__(self, model: InferenceModel, profile: PrefillProfile, settings: PrefillSettings) -> None:
        self._chunk_tokens = settings.chunk_tokens
        self._profile = profile

        @lru_cache(maxsize=1 << 16)
        def chunk(tokens: int, prior_tokens: int) -> Chunk:
            size_bytes = model.activation_bytes(tokens)
            layer_ns = profile.chunk_ns(1, tokens, prior_tokens)
            return Chunk(tokens, prior_tokens, layer_ns, settings.transfer_ns(size_bytes), size_bytes)

        self._chunk = chunk

    def next_chunk(self, prompt_tokens: int, prior_tokens: int, longest_bubble_ns: int) -> Chunk | None:
        """Return the chunk after ``prior_tokens``: the configured size, or smaller if needed for the longest bubble.

        One layer of the chunk must fit into that bubble. Returns None if not even a chunk of one token fits.
        """
        chunk = self._chunk(min(self._chunk_tokens, prompt_tokens - prior_tokens), prior_tokens)
        if chunk.layer_ns <= longest_bubble_ns:
            return chunk
        tokens = self._profile.largest_chunk(1, prior_tokens, longest_bubble_ns)
        return self._chunk(tokens, prior_tokens) if tokens else None

    def layer_ns(self, prompt_tokens: int) -> int:
        """Return the time of a whole prompt in one layer, in chunks of the configured size."""
        step = self._chunk_tokens
        return sum(
            self._chunk(min(step, prompt_tokens - prior), prior).layer_ns for prior in range(0, prompt_tokens, step)
        )

"""The numbers of a Llama-shaped model for inference: bytes and operations of its stages. Needs no torch."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType


@dataclass(frozen=True)
class InferenceModel:
    """A decoder of RMSNorm, rotary embedding, grouped-query attention and a gated feed-forward layer (SwiGLU).

    ``heads`` queries of ``head_dim`` share ``kv_heads`` keys and values evenly. Embedding and head are two matrices.
    Weights, activations and KV cache take ``bytes_per_element`` each. Raises ValueError naming the field.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int
    vocabulary: int
    bytes_per_element: int

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name != "name" and getattr(self, field.name) < 1:
                raise ValueError(f"{field.name}: {getattr(self, field.name)} is below 1")
        if self.heads % self.kv_heads:
            raise ValueError(f"kv_heads: {self.heads} heads do not share {self.kv_heads} KV heads evenly")
        if self.head_dim % 2:
            raise ValueError(f"head_dim: {self.head_dim} is odd, and rotary embedding turns pairs")

    def weight_bytes(self, layers: int, *, embedding: bool, head: bool) -> int:
        """Return the bytes of the weights of ``layers`` layers, with the embedding, or the head and its norm, if asked.

        A layer has hidden x head_dim x (2 heads + 2 kv_heads) in its attention, 3 x hidden x feed_forward in its
        feed-forward layer, and 2 hidden in its norms.
        """
        self._check(layers=layers)
        count = layers * (self._matrix_weights + 2 * self.hidden)
        if embedding:
            count += self.vocabulary * self.hidden
        if head:
            count += self.vocabulary * self.hidden + self.hidden
        return count * self.bytes_per_element

    def kv_bytes(self, layers: int, tokens: int) -> int:
        """Return the bytes of the KV cache of ``layers`` layers: a key and a value of each KV head for every token."""
        self._check(layers=layers, tokens=tokens)
        return 2 * layers * self.kv_heads * self.head_dim * self.bytes_per_element * tokens

    def activation_bytes(self, tokens: int) -> int:
        """Return the bytes of what a stage sends to the next."""
        self._check(tokens=tokens)
        return tokens * self.hidden * self.bytes_per_element

    def flops(self, layers: int, tokens: int, prior_tokens: int) -> float:
        """Return the floating-point operations of prefilling ``tokens`` after ``prior_tokens`` in ``layers`` layers.

        With n tokens after p, W weights in a layer's matrices and A = heads x head_dim: 2 n W for the products with
        weights, and 4 A (n p + n (n + 1) / 2) for scores and weighted values, as each token attends to itself and all
        before it (Kaplan et al., "Scaling Laws for Neural Language Models", 2020, table 1, with the gated
        feed-forward layer and grouped queries counted). Only products of matrices count, and nothing that the causal
        mask hides. The operations of chunks add up to those of the prompt at once.
        """
        self._check(layers=layers, tokens=tokens, prior_tokens=prior_tokens)
        return layers * (
            tokens * self.flops_per_token + self.token_pairs(tokens, prior_tokens) * self.flops_per_token_pair
        )

    @property
    def flops_per_token(self) -> float:
        """Operations of a layer for a token, whatever it attends to."""
        return 2.0 * self._matrix_weights

    @property
    def flops_per_token_pair(self) -> float:
        """Operations of a layer for a token's attention to one token: a product for the score, one for the value."""
        return 4.0 * self.heads * self.head_dim

    @staticmethod
    def token_pairs(tokens: int, prior_tokens: int) -> int:
        """Return the pairs of a token and one it attends to: n p + n (n + 1) / 2."""
        return tokens * prior_tokens + tokens * (tokens + 1) // 2

    def head_flops(self, tokens: int = 1) -> float:
        """Return the operations of the head. A prefill needs the logits of a prompt's last token only."""
        self._check(tokens=tokens)
        return 2.0 * tokens * self.hidden * self.vocabulary

    def stage_layers(self, depth: int) -> tuple[int, ...]:
        """Return the layers of each of ``depth`` stages, as even as possible: the first ones have one more.

        Raises ValueError if a stage would have none.
        """
        if not 1 <= depth <= self.layers:
            raise ValueError(f"depth: {self.layers} layers make 1 to {self.layers} stages, not {depth}")
        each, more = divmod(self.layers, depth)
        return (each + 1,) * more + (each,) * (depth - more)

    @property
    def _matrix_weights(self) -> int:
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        return attention + 3 * self.hidden * self.feed_forward

    @staticmethod
    def _check(**counts: int) -> None:
        for name, count in counts.items():
            if count < 0:
                raise ValueError(f"{name}: {count} is negative")


def _by_name(*models: InferenceModel) -> Mapping[str, InferenceModel]:
    return MappingProxyType({model.name: model for model in models})


INFERENCE_MODELS: Mapping[str, InferenceModel] = _by_name(
    InferenceModel(
        name="llama-8b",
        layers=32,
        hidden=4096,
        heads=32,
        kv_heads=8,
        head_dim=128,
        feed_forward=14336,
        vocabulary=128_256,
        bytes_per_element=2,
    ),
    InferenceModel(
        name="llama-70b",
        layers=80,
        hidden=8192,
        heads=64,
        kv_heads=8,
        head_dim=128,
        feed_forward=28672,
        vocabulary=128_256,
        bytes_per_element=2,
    ),
    InferenceModel(
        name="llama-tiny",
        layers=8,
        hidden=64,
        heads=4,
        kv_heads=2,
        head_dim=16,
        feed_forward=160,
        vocabulary=512,
        bytes_per_element=4,
    ),
)
"""The models known by name.

The sizes of Llama 3 8B and 70B are those of Grattafiori et al., "The Llama 3 Herd of Models", arXiv 2407.21783, table
3, in bf16; the vocabulary of the released weights has 128,256 entries, where the table rounds to 128,000.
``llama-tiny`` is for tests: fp32, and deep enough for 8 stages.
"""

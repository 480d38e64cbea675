"""The sizes of a Llama-shaped model for inference, its bytes and operations, and how it is computed. Needs no torch."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType

from wanbed.workloads.compute.device_settings import DeviceSettings


@dataclass(frozen=True)
class InferenceModel:
    """A decoder with RMSNorm, rotary embedding, grouped-query attention and a gated feed-forward layer (SwiGLU).

    ``heads`` query heads of ``head_dim`` elements share ``kv_heads`` key and value heads evenly. Embedding and head are
    two separate matrices. An element of weights, activations and KV cache takes ``bytes_per_element``. Raises
    ValueError naming the field.
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
        """Return the bytes of the weights of ``layers`` layers, plus the embedding, plus the head and its norm.

        A layer has hidden x head_dim x (2 heads + 2 kv_heads) weights in its attention, 3 x hidden x feed_forward in
        its feed-forward layer, and 2 hidden in its norms.
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
        """Return the bytes of the activation that a stage sends to the next stage."""
        self._check(tokens=tokens)
        return tokens * self.hidden * self.bytes_per_element

    def flops(self, layers: int, tokens: int, prior_tokens: int) -> float:
        """Return the floating-point operations of prefilling ``tokens`` after ``prior_tokens`` in ``layers`` layers.

        For n tokens after p, with W weights in a layer's matrices and A = heads x head_dim, a layer needs 2 n W for the
        products with weights, and 4 A (n p + n (n + 1) / 2) for scores and weighted values, because each token attends
        to itself and all tokens before it (Kaplan et al., "Scaling Laws for Neural Language Models", 2020, table 1,
        with the gated feed-forward layer and grouped queries counted). Only products of matrices are counted, without
        what the causal mask hides. The operations of a prompt's chunks add up to those of the whole prompt.
        """
        self._check(layers=layers, tokens=tokens, prior_tokens=prior_tokens)
        return layers * (
            tokens * self.flops_per_token + self.token_pairs(tokens, prior_tokens) * self.flops_per_token_pair
        )

    @property
    def flops_per_token(self) -> float:
        """Operations of a layer for each token, apart from attention scores and weighted values."""
        return 2.0 * self._matrix_weights

    @property
    def flops_per_token_pair(self) -> float:
        """Operations of a layer for the attention of one token to one token: one product each for score and value."""
        return 4.0 * self.heads * self.head_dim

    @staticmethod
    def token_pairs(tokens: int, prior_tokens: int) -> int:
        """Return the number of pairs of a token and a token that it attends to: n p + n (n + 1) / 2."""
        return tokens * prior_tokens + tokens * (tokens + 1) // 2

    def head_flops(self, tokens: int = 1) -> float:
        """Return the operations of the head. A prefill needs only the logits of the prompt's last token."""
        self._check(tokens=tokens)
        return 2.0 * tokens * self.hidden * self.vocabulary

    def stage_layers(self, depth: int) -> tuple[int, ...]:
        """Return the number of layers of each of ``depth`` stages: as even as possible, the first stages one more.

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
"""The predefined models, by name.

The sizes of Llama 3 8B and 70B are those of Grattafiori et al., "The Llama 3 Herd of Models", arXiv 2407.21783, table
3, in bf16; the vocabulary of the released weights has 128,256 entries, where the table rounds to 128,000.
``llama-tiny`` is for tests: fp32, and deep enough for 8 stages.
"""

_PRECISIONS = {2: "bf16", 4: "fp32"}


@dataclass(frozen=True)
class InferenceWork:
    """The way in which torch computes ``model``, or some layers of it. Raises ValueError naming the field.

    Weights and prompt tokens are drawn from ``seed``, so every process draws the same ones for a layer and a request.
    """

    model: InferenceModel
    seed: int
    device: DeviceSettings

    def __post_init__(self) -> None:
        if self.model.bytes_per_element not in _PRECISIONS:
            raise ValueError(f"model: torch has no precision of {self.model.bytes_per_element} bytes an element here")
        if self.seed < 0:
            raise ValueError(f"seed: {self.seed} is below 0")

    @property
    def precision(self) -> str:
        """The precision of weights, activations and KV cache: the one with the model's ``bytes_per_element``."""
        return _PRECISIONS[self.model.bytes_per_element]

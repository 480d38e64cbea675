"""The dimensions of a GPT: its division into stages, and a stage's parameters, operations and bytes. Needs no torch."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from types import MappingProxyType

BYTES_PER_ELEMENT: Mapping[str, int] = MappingProxyType({"fp32": 4, "bf16": 2, "fp16": 2})
"""The bytes of one element of a weight, an activation or a gradient, by precision."""

TRAINED_PRECISIONS = ("fp32", "bf16")
"""The precisions in which torch trains: no losses are scaled, which fp16 would need."""

MAX_LAYERS = 2**16
MAX_HIDDEN = 2**20
MAX_HEADS = MAX_HIDDEN
MAX_CONTEXT_TOKENS = 10**8
MAX_VOCABULARY_TOKENS = 10**8
"""About a hundred times the dimensions of the largest models. Products of them are bounded where they are used."""


class Architecture(StrEnum):
    """Which weights a model has besides those of all."""

    GPT = "gpt"
    GPT_2 = "gpt-2"
    LLAMA = "llama"


@dataclass(frozen=True)
class GptConfig:
    """A decoder-only GPT. ``context`` is the number of tokens of a sequence, ``vocabulary`` that of different tokens.

    ``heads`` query heads share ``kv_heads`` key and value heads evenly, by default each has its own. ``feed_forward``
    is the width inside the feed-forward layer, by default 4 times the hidden size. The ``architecture`` says which
    other weights there are:

    - ``gpt``, the one that torch trains here: linear layers without biases, norms with two weights an element,
      embeddings of positions;
    - ``gpt-2``: the same with biases in the linear layers of each layer;
    - ``llama``: no biases, norms with one weight an element, no embeddings of positions, and a gated feed-forward
      layer, of three matrices instead of two.

    With ``tied_head`` the head is the embedding of tokens. ``cut`` has the number of layers of each stage where the
    model is divided into as many stages, None where all have the same. Raises ValueError naming the field.
    """

    layers: int
    hidden: int
    context: int
    heads: int
    vocabulary: int
    architecture: Architecture = Architecture.GPT
    kv_heads: int | None = None
    feed_forward: int | None = None
    tied_head: bool = False
    cut: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, int) and not isinstance(value, bool) and value < 1:
                raise ValueError(f"{field.name}: {value} is below 1")
        if self.hidden % self.heads:
            raise ValueError(f"heads: {self.heads} heads do not share a hidden size of {self.hidden} evenly")
        if self.heads % (self.kv_heads or self.heads):
            raise ValueError(f"kv_heads: {self.heads} heads do not share {self.kv_heads} key and value heads evenly")
        if self.cut is not None and (sum(self.cut) != self.layers or min(self.cut, default=0) < 1):
            raise ValueError(f"cut: stages of {self.cut} layers do not make {self.layers}")

    @property
    def trains_in_torch(self) -> bool:
        """Return whether it is a model that torch builds here: a plain GPT, of any dimensions."""
        plain = self.kv_heads in {None, self.heads} and self.feed_forward in {None, 4 * self.hidden}
        return self.architecture is Architecture.GPT and plain and not self.tied_head

    def layers_of(self, stage: int, stages: int) -> range:
        """Return the indices of a stage's layers, which are consecutive: those of ``cut``, or as many for all stages.

        If the layers do not divide evenly, the first stages have one more, because the last one has the head, which
        costs about as much as a layer. Raise ValueError if there is no such stage, or a stage would have no layer.
        """
        if not 1 <= stages <= self.layers:
            raise ValueError(f"stages: {self.layers} layers make 1 to {self.layers} stages, not {stages}")
        if not 0 <= stage < stages:
            raise ValueError(f"stage: {stage} is none of the {stages} stages")
        if self.cut is not None and len(self.cut) == stages:
            start = sum(self.cut[:stage])
            return range(start, start + self.cut[stage])
        each, more = divmod(self.layers, stages)
        start = stage * each + min(stage, more)
        return range(start, start + each + (stage < more))

    def parameters(self, stage: int, stages: int) -> int:
        """Return how many weights a stage has.

        With H the hidden size, K = H x kv_heads / heads the width of keys and values, and F the width inside the
        feed-forward layer, a layer has 2 H^2 + 2 H K weights in its attention, 2 H F in its feed-forward layer (3 H F
        if it is gated), and two norms of 2 H (H of ``llama``); ``gpt-2`` has 3 H + 2 K + F biases besides, that is
        of queries, keys, values, attention's output and both feed-forward matrices. By default K = H and F = 4 H, which
        makes 12 H^2 + 4 H. The first stage also has the embeddings of tokens and positions, the last stage the final
        norm and the head, unless that is tied to an embedding at the same stage.
        """
        norm = self.hidden if self._is_llama else 2 * self.hidden
        layer = self._layer_matrix_weights + 2 * norm
        if self.architecture is Architecture.GPT_2:
            layer += 3 * self.hidden + 2 * self._kv_width + self._inner_width
        count = len(self.layers_of(stage, stages)) * layer
        if stage == 0:
            count += (self.vocabulary + (0 if self._is_llama else self.context)) * self.hidden
        if stage == stages - 1:
            count += norm + (0 if self.tied_head and stages == 1 else self.vocabulary * self.hidden)
        return count

    @property
    def _is_llama(self) -> bool:
        return self.architecture is Architecture.LLAMA

    @property
    def _kv_width(self) -> int:
        return self.hidden // self.heads * (self.kv_heads or self.heads)

    @property
    def _inner_width(self) -> int:
        return self.feed_forward or 4 * self.hidden

    @property
    def _layer_matrix_weights(self) -> int:
        attention = 2 * self.hidden**2 + 2 * self.hidden * self._kv_width
        return attention + (3 if self._is_llama else 2) * self.hidden * self._inner_width

    def largest_matrix_weights(self, stage: int, stages: int) -> int:
        """Return how many weights the largest matrix of a stage has."""
        embeds = stage in (0, stages - 1)
        return self.hidden * max(self._inner_width, self.vocabulary if embeds else 0)

    def forward_flops(self, stage: int, stages: int, sequences: int = 1) -> int:
        """Return the floating-point operations of a stage's forward over ``sequences`` whole sequences.

        With B sequences of L tokens, a hidden size of H and a vocabulary of V: 2 B L W + 4 B L^2 H for each layer with
        W weights in its matrices, and 2 B L H V for the head. W is 12 H^2 by default (Narayanan et al., "Efficient
        Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC 2021, appendix). Only matrix products
        count. As in the paper, attention counts in full, although a causal kernel may skip the masked half.
        """
        tokens = sequences * self.context
        layer = 2 * tokens * self._layer_matrix_weights + 4 * tokens * self.context * self.hidden
        head = 2 * tokens * self.hidden * self.vocabulary if stage == stages - 1 else 0
        return len(self.layers_of(stage, stages)) * layer + head

    def causal_forward_flops(self, stage: int, stages: int, sequences: int = 1) -> int:
        """Return the operations that a causal kernel performs in a stage's forward: half of attention is masked.

        ``forward_flops`` less 2 B L^2 H for each layer.
        """
        skipped = 2 * sequences * self.context**2 * self.hidden
        return self.forward_flops(stage, stages, sequences) - len(self.layers_of(stage, stages)) * skipped

    def activation_bytes(self, precision: str) -> int:
        """Return the bytes of one sequence's activation at a stage boundary, or of its gradient.

        Raise ValueError for an unknown precision.
        """
        return self.context * self.hidden * bytes_per_element(precision)

    def gradient_bytes(self, stage: int, stages: int, precision: str) -> int:
        """Return the bytes of the gradients of all weights of a stage. Raise ValueError for an unknown precision."""
        return self.parameters(stage, stages) * bytes_per_element(precision)


def bytes_per_element(precision: str) -> int:
    """Return the bytes of one element. Raise ValueError for an unknown precision, naming the known ones."""
    if precision not in BYTES_PER_ELEMENT:
        raise ValueError(f"precision: {precision!r} is none of {', '.join(BYTES_PER_ELEMENT)}")
    return BYTES_PER_ELEMENT[precision]

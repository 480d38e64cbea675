"""The dimensions of a GPT: its division into stages, and a stage's parameters, operations and bytes. Needs no torch."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType

BYTES_PER_ELEMENT: Mapping[str, int] = MappingProxyType({"fp32": 4, "bf16": 2})
"""The bytes of one element of a weight, an activation or a gradient, by precision."""

MAX_LAYERS = 2**16
MAX_HIDDEN = 2**20
MAX_HEADS = MAX_HIDDEN
MAX_CONTEXT_TOKENS = 10**8
MAX_VOCABULARY_TOKENS = 10**8
"""About a hundred times the dimensions of the largest models. Products of them are bounded where they are used."""


@dataclass(frozen=True)
class GptConfig:
    """A decoder-only GPT. ``context`` is the number of tokens of a sequence, ``vocabulary`` that of different tokens.

    Raises ValueError naming the field.
    """

    layers: int
    hidden: int
    context: int
    heads: int
    vocabulary: int

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 1:
                raise ValueError(f"{field.name}: {getattr(self, field.name)} is below 1")
        if self.hidden % self.heads:
            raise ValueError(f"heads: {self.heads} heads do not share a hidden size of {self.hidden} evenly")

    def layers_of(self, stage: int, stages: int) -> range:
        """Return the indices of a stage's layers, which are consecutive. All stages have the same number of layers.

        If the layers do not divide evenly, the first stages have one more, because the last one has the head, which
        costs about as much as a layer. Raise ValueError if there is no such stage, or a stage would have no layer.
        """
        if not 1 <= stages <= self.layers:
            raise ValueError(f"stages: {self.layers} layers make 1 to {self.layers} stages, not {stages}")
        if not 0 <= stage < stages:
            raise ValueError(f"stage: {stage} is none of the {stages} stages")
        each, more = divmod(self.layers, stages)
        start = stage * each + min(stage, more)
        return range(start, start + each + (stage < more))

    def parameters(self, stage: int, stages: int) -> int:
        """Return how many weights a stage has.

        A layer has 12 hidden^2 weights in its four linear layers and 4 hidden in its two norms. The first stage also
        has the embeddings of tokens and positions, the last stage the final norm and the head.
        """
        count = len(self.layers_of(stage, stages)) * (12 * self.hidden**2 + 4 * self.hidden)
        if stage == 0:
            count += (self.vocabulary + self.context) * self.hidden
        if stage == stages - 1:
            count += 2 * self.hidden + self.vocabulary * self.hidden
        return count

    def forward_flops(self, stage: int, stages: int, sequences: int = 1) -> int:
        """Return the floating-point operations of a stage's forward over ``sequences`` whole sequences.

        With B sequences of L tokens, a hidden size of H and a vocabulary of V: 24 B L H^2 + 4 B L^2 H for each layer,
        and 2 B L H V for the head (Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters
        Using Megatron-LM", SC 2021, appendix). Only matrix products count. As in the paper, attention counts in full,
        although a causal kernel may skip the masked half.
        """
        tokens = sequences * self.context
        layer = 24 * tokens * self.hidden**2 + 4 * tokens * self.context * self.hidden
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

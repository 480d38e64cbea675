"""Encode activations and their gradients for the WAN, and decode them.

A block of ``topk`` is the places of its kept numbers, then the numbers, in the order of their places.
"""

from collections.abc import Hashable

import torch
from torch import Tensor

from wanbed.workloads.compute.activation_wire import PLACE_BYTES, ActivationWire
from wanbed.workloads.synchronization.codec import aligned, decode, encode
from wanbed.workloads.synchronization.synchronization import BLOCK


def encode_message(elements: Tensor, wire: ActivationWire) -> Tensor:
    """Return the bytes of a flat fp32 tensor in the wire format, ``wire.encoded_bytes`` of them, as uint8."""
    if wire.kept is None:
        return encode(elements, wire.numbers)
    blocks = torch.nn.functional.pad(elements, (0, -elements.numel() % BLOCK)).view(-1, BLOCK)
    # A stable order, so that of equal magnitudes always the same ones are kept.
    order = blocks.abs().sort(dim=1, descending=True, stable=True).indices
    places = order[:, : wire.kept].sort(dim=1).values
    kept = encode(blocks.gather(1, places).flatten(), wire.numbers).view(len(blocks), -1)
    return torch.cat((places.to(torch.int16).view(torch.uint8), kept), dim=1).flatten()


def decode_message(encoded: Tensor, elements: int, wire: ActivationWire) -> Tensor:
    """Return the ``elements`` fp32 numbers of encoded bytes. Those that ``topk`` has not kept are 0."""
    encoded = aligned(encoded)
    if wire.kept is None:
        return decode(encoded, wire.numbers)[:elements]
    rows = encoded.view(-1, wire.kept * (wire.numbers.element_bytes + PLACE_BYTES))
    split = wire.kept * PLACE_BYTES
    places = rows[:, :split].contiguous().view(torch.int16).long()
    kept = decode(aligned(rows[:, split:].flatten()), wire.numbers).view(len(rows), -1)
    blocks = torch.zeros(len(rows), BLOCK, device=encoded.device)
    return blocks.scatter_(1, places, kept).flatten()[:elements]


class MessageEncoder:
    """Encodes what one stage sends, and keeps what that has lost where the wire format has error feedback."""

    def __init__(self, wire: ActivationWire) -> None:
        self._wire = wire
        self._lost: dict[Hashable, Tensor] = {}

    def encode(self, message: Tensor, position: Hashable) -> Tensor:
        """Return the bytes of a tensor of any precision, as uint8.

        What is lost goes with the next message of the same ``position``.
        """
        elements = message.detach().flatten().float()
        if not self._wire.error_feedback:
            return encode_message(elements, self._wire)
        if position in self._lost:
            elements = elements + self._lost[position]
        encoded = encode_message(elements, self._wire)
        self._lost[position] = elements - decode_message(encoded, elements.numel(), self._wire)
        return encoded

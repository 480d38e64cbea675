"""What an encoded message has when it arrives, and what error feedback sends of what was lost."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from wanbed.workloads.compute.activation_codec import MessageEncoder, decode_message, encode_message
from wanbed.workloads.compute.activation_wire import ActivationWire
from wanbed.workloads.synchronization.synchronization import BLOCK, WireFormat

WIRES = [
    *(ActivationWire(each) for each in WireFormat),
    *(ActivationWire(WireFormat.BF16, kept) for kept in (1, 10, 512, BLOCK)),
    ActivationWire(WireFormat.FP32, 7),
]


def named(wire: ActivationWire) -> str:
    return f"{wire.name} {wire.numbers} {wire.kept}"


def numbers(elements: int, seed: int = 0) -> Tensor:
    return torch.randn(elements, generator=torch.Generator().manual_seed(seed))


def across(sent: Tensor, wire: ActivationWire) -> Tensor:
    return decode_message(encode_message(sent, wire), sent.numel(), wire)


@pytest.mark.parametrize("wire", WIRES, ids=named)
@given(elements=st.integers(1, 5000))
def test_a_message_has_the_size_that_is_known_ahead_and_arrives_with_as_many_numbers(
    wire: ActivationWire, elements: int
) -> None:
    encoded = encode_message(numbers(elements), wire)
    assert (encoded.dtype, encoded.numel()) == (torch.uint8, wire.encoded_bytes(elements))
    assert decode_message(encoded, elements, wire).shape == (elements,)


@given(st.integers(1, 3000), st.integers(1, BLOCK), st.integers(0, 100))
def test_topk_sends_the_largest_of_each_block_and_nothing_else(elements: int, kept: int, seed: int) -> None:
    sent = numbers(elements, seed)
    arrived = across(sent, ActivationWire(WireFormat.BF16, kept))
    for block, found in zip(sent.split(BLOCK), arrived.split(BLOCK), strict=True):
        largest = block.abs().sort(descending=True).values[:kept]
        chosen = block.abs() >= largest[-1]
        assert torch.equal(found, torch.where(chosen, block.bfloat16().float(), 0.0))


def test_of_equal_magnitudes_the_first_are_kept() -> None:
    arrived = across(torch.tensor([1.0, -1.0, 1.0, -1.0]), ActivationWire(WireFormat.BF16, 2))
    assert arrived.tolist() == [1.0, -1.0, 0.0, 0.0]


def test_a_block_that_is_kept_whole_arrives_as_it_is() -> None:
    sent = numbers(3 * BLOCK)
    assert torch.equal(across(sent, ActivationWire(WireFormat.FP32, BLOCK)), sent)


def test_a_message_is_decoded_wherever_it_lies_in_memory() -> None:
    for wire in WIRES:
        sent = numbers(2 * BLOCK)
        encoded = encode_message(sent, wire)
        memory = bytearray(encoded.numel() + 1)
        memory[1:] = encoded.numpy().tobytes()
        moved = torch.frombuffer(memoryview(memory)[1:], dtype=torch.uint8)
        assert torch.equal(decode_message(moved, sent.numel(), wire), across(sent, wire)), wire


@pytest.mark.parametrize("wire", [ActivationWire(WireFormat.INT8), ActivationWire(WireFormat.BF16, 50)], ids=named)
def test_what_is_lost_goes_with_the_next_message_of_the_same_position(wire: ActivationWire) -> None:
    encoder = MessageEncoder(ActivationWire(wire.numbers, wire.kept, error_feedback=True))
    messages = {position: [numbers(2 * BLOCK, 10 * position + each) for each in range(4)] for position in (0, 1)}
    arrived = {
        position: [decode_message(encoder.encode(each.view(2, -1), position), 2 * BLOCK, wire) for each in own]
        for position, own in messages.items()
    }
    for position, own in messages.items():
        lost = torch.zeros(2 * BLOCK)
        for sent, found in zip(own, arrived[position], strict=True):
            assert torch.equal(found, across(sent + lost, wire))
            lost = sent + lost - found
        # All that was ever sent has arrived, but for what the last message has lost.
        torch.testing.assert_close(sum(arrived[position]) + lost, torch.stack(own).sum(0))


def test_without_error_feedback_messages_have_nothing_of_those_before() -> None:
    wire = ActivationWire(WireFormat.BF16, 3)
    encoder, sent = MessageEncoder(wire), numbers(BLOCK)
    encoder.encode(numbers(BLOCK, 1), 0)
    assert torch.equal(encoder.encode(sent, 0), encode_message(sent, wire))


@pytest.mark.parametrize(
    ("made", "refusal"),
    [
        (lambda: ActivationWire(WireFormat.BF16, 0), "kept: 0 is not from 1 to 1024"),
        (lambda: ActivationWire(WireFormat.BF16, 1025), "kept: 1025 is not from 1 to 1024"),
        (lambda: ActivationWire(WireFormat.INT8, 3), "kept: numbers of int8 share a scale, so that none goes alone"),
    ],
)
def test_a_format_that_cannot_be_is_refused(made: object, refusal: str) -> None:
    assert callable(made)
    with pytest.raises(ValueError, match=f"^{refusal}$"):
        made()

"""Wire formats: their sizes, and the error of encoding and of adding what is encoded."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from wanbed.workloads.synchronization.codec import add_encoded, decode, encode
from wanbed.workloads.synchronization.synchronization import BLOCK, WireFormat

ROUNDING = 1e-6
"""What fp32 itself rounds, relative to the largest magnitude."""

BITS = {
    WireFormat.FP32: 32,
    WireFormat.BF16: 16,
    WireFormat.FP16: 16,
    WireFormat.INT8: 8,
    WireFormat.FP8: 8,
    WireFormat.FP4: 4,
}

HALF_STEP = 2**-25
"""Half the smallest step of fp16, which has no scale: what is below is lost."""

BOUND: dict[WireFormat, Callable[[Tensor, float], Tensor]] = {
    WireFormat.FP32: lambda x, _: torch.zeros_like(x),
    WireFormat.BF16: lambda x, _: x.abs() / 2**8,
    WireFormat.FP16: lambda x, _: (x.abs() / 2**11).clamp(min=HALF_STEP),
    WireFormat.INT8: lambda x, most: torch.full_like(x, most / 254),
    WireFormat.FP8: lambda x, most: (x.abs() / 2**4).clamp(min=most / 448 / 2**10),
    WireFormat.FP4: lambda x, most: (x.abs() / 3).clamp(min=most / 2**7),
}
"""The error of one encoding of a block whose largest magnitude is given, as the module states it."""

SHARE: dict[WireFormat, float] = {
    WireFormat.FP32: 0,
    WireFormat.BF16: 1 / 2**8,
    WireFormat.FP16: 1 / 2**11,
    WireFormat.INT8: 1 / 254,
    WireFormat.FP8: 1 / 2**4,
    WireFormat.FP4: 1 / 3,
}
"""The largest error over the block's largest magnitude."""


def in_range(numbers: Tensor, wire: WireFormat) -> Tensor:
    """The numbers, of which no ten make more than fp16 has."""
    return numbers.clamp(-6500, 6500) if wire is WireFormat.FP16 else numbers


def blocks() -> st.SearchStrategy[Tensor]:
    """Numbers of one block, over several orders of magnitude."""
    numbers = st.tuples(st.integers(0, 2**32 - 1), st.integers(1, BLOCK), st.floats(-12, 12), st.floats(0, 4))
    return numbers.map(
        lambda drawn: torch.from_numpy(
            (
                np.random.default_rng(drawn[0]).normal(size=drawn[1])
                * 10 ** (drawn[2] + drawn[3] * np.random.default_rng(drawn[0] + 1).normal(size=drawn[1]))
            ).astype(np.float32)
        ).clamp(-1e30, 1e30)
    )


@pytest.mark.parametrize("wire", WireFormat)
@given(elements=st.integers(0, 10_000))
def test_the_encoded_size_is_stated_ahead_and_within_1_percent_of_the_bits(wire: WireFormat, elements: int) -> None:
    assert encode(torch.zeros(elements), wire).numel() == wire.encoded_bytes(elements)
    if elements % BLOCK == 0:
        assert elements * BITS[wire] / 8 <= wire.encoded_bytes(elements) <= elements * BITS[wire] / 8 * 1.01


@pytest.mark.parametrize("wire", WireFormat)
@settings(max_examples=200)
@given(numbers=blocks())
def test_one_encoding_errs_by_no_more_than_its_bound(wire: WireFormat, numbers: Tensor) -> None:
    numbers = in_range(numbers, wire)
    most = float(numbers.abs().max())
    error = (decode(encode(numbers, wire), wire)[: numbers.numel()] - numbers).abs()
    assert bool((error <= BOUND[wire](numbers, most) + ROUNDING * most).all())


@pytest.mark.parametrize("wire", WireFormat)
@given(drawn=blocks(), replicas=st.integers(2, 5))
def test_a_sum_on_the_ring_errs_by_no_more_than_its_encodings(wire: WireFormat, drawn: Tensor, replicas: int) -> None:
    drawn = in_range(drawn, wire)
    parts = [drawn * (1 - each / 3) for each in range(replicas)]
    # At each replica once, then the partial sum at every hop: what an encoding may add is a share of what it encodes.
    bound = sum(SHARE[wire] * float(part.abs().max()) for part in parts)
    bound += (2 * replicas - 1) * HALF_STEP if wire is WireFormat.FP16 else 0
    total = encode(parts[0], wire)
    for part in parts[1:]:
        add_encoded(total.numpy().data, encode(part, wire).numpy().data, wire)
        most = float(decode(total, wire).abs().max())
        # The encoded maximum is within a share of the exact one.
        bound += SHARE[wire] * most / (1 - SHARE[wire])
    exact = torch.stack(parts).sum(0)
    error = (decode(total, wire)[: drawn.numel()] - exact).abs().max()
    assert float(error) <= bound + ROUNDING * replicas * sum(float(part.abs().max()) for part in parts)


def test_powers_of_two_are_exact_in_fp4() -> None:
    numbers = torch.tensor([4.0, -2.0, 1.0, 0.5, -0.25, 0.125, 0.0625, 0.0])
    assert decode(encode(numbers, WireFormat.FP4), WireFormat.FP4)[:8].tolist() == numbers.tolist()


@pytest.mark.parametrize("wire", WireFormat)
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_does_not_become_finite(wire: WireFormat, value: float) -> None:
    numbers = torch.ones(8)
    numbers[3] = value
    assert not bool(torch.isfinite(decode(encode(numbers, wire), wire)[3]))


@pytest.mark.parametrize("wire", WireFormat)
def test_a_part_that_begins_anywhere_in_memory_is_added(wire: WireFormat) -> None:
    ones = encode(torch.ones(5), wire)
    shifted = torch.cat((torch.zeros(1, dtype=torch.uint8), ones)).numpy().data[1:]
    total = ones.clone()
    add_encoded(total.numpy().data, shifted, wire)
    assert decode(total, wire)[:5].tolist() == [2.0] * 5


def test_fp16_is_ieees_half_and_infinite_beyond_it() -> None:
    numbers = torch.tensor([1.0, -2.5, 65504.0, 70000.0, -1e30, 2.0**-24, 2.0**-26])
    expected = [1.0, -2.5, 65504.0, float("inf"), -float("inf"), 2.0**-24, 0.0]
    assert decode(encode(numbers, WireFormat.FP16), WireFormat.FP16).tolist() == expected
    assert encode(numbers[:3], WireFormat.FP16).numpy().tobytes() == numbers[:3].numpy().astype(np.float16).tobytes()


def test_fp4_rounds_to_the_nearest_power_of_two_and_what_is_below_half_the_smallest_to_zero() -> None:
    # With 1 the largest: 3/4 of a power goes up, less goes down; the smallest magnitude is 1/64, half of it 1/128.
    written = {
        0.75: 1.0,
        0.74: 0.5,
        -0.375: -0.5,
        0.37: 0.25,
        1 / 64: 1 / 64,
        1 / 100: 1 / 64,
        1 / 128: 1 / 64,
        1 / 129: 0.0,
        -1 / 128: -1 / 64,
        1.0: 1.0,
    }
    assert decode(encode(torch.tensor([*written]), WireFormat.FP4), WireFormat.FP4)[:10].tolist() == [*written.values()]


def test_int8_has_127_equal_steps_to_either_side() -> None:
    numbers = torch.tensor([127.0, -127.0, 1.0, 1.4, 1.6, 0.0, -63.0])
    assert decode(encode(numbers, WireFormat.INT8), WireFormat.INT8)[:7].tolist() == [127, -127, 1, 1, 2, 0, -63]


def test_blocks_have_scales_of_their_own() -> None:
    numbers = torch.cat((torch.full((BLOCK,), 1000.0), torch.full((3,), 0.001)))
    for wire in (WireFormat.INT8, WireFormat.FP8, WireFormat.FP4):
        found = decode(encode(numbers, wire), wire)
        assert torch.allclose(found[: BLOCK + 3], numbers, rtol=1e-6)
        assert found[BLOCK + 3 :].tolist() == [0.0] * (BLOCK - 3)
        assert wire.encoded_bytes(BLOCK) == wire.element_bytes == 4 + BLOCK * BITS[wire] // 8
        assert wire.encoded_bytes(BLOCK + 1) == 2 * wire.element_bytes


def test_nothing_is_added_to_nothing() -> None:
    for wire in WireFormat:
        add_encoded(memoryview(bytearray()), memoryview(bytearray()), wire)

import math

import torch

from wanbed.workloads.inference.rotary import ROTARY_BASE, Rotation

CPU = torch.device("cpu")


def drawn(tokens: int) -> torch.Tensor:
    return torch.randn(tokens, 3, 16, generator=torch.Generator().manual_seed(1))


def test_positions_count_from_the_start_of_the_sequence_wherever_a_chunk_starts() -> None:
    x = drawn(10)
    whole = Rotation(16, range(10), CPU).apply(x)
    assert torch.equal(Rotation(16, range(4, 10), CPU).apply(x[4:]), whole[4:])


def test_the_first_token_is_not_turned() -> None:
    assert torch.equal(Rotation(16, range(1), CPU).apply(drawn(1)), drawn(1))


def test_each_pair_is_turned_by_its_own_angle() -> None:
    x = torch.zeros(1, 1, 16)
    x[0, 0, 3] = 1
    turned = Rotation(16, range(100_000, 100_001), CPU).apply(x)[0, 0]
    angle = 100_000 * ROTARY_BASE ** -(6 / 16)
    assert math.isclose(turned[3].item(), math.cos(angle), abs_tol=1e-6)
    assert math.isclose(turned[11].item(), math.sin(angle), abs_tol=1e-6)
    assert turned.count_nonzero() == 2


def test_products_of_queries_and_keys_depend_on_how_far_apart_they_are() -> None:
    query, key = drawn(2).split(1)

    def product(of_query: int, of_key: int) -> torch.Tensor:
        turned = [Rotation(16, range(at, at + 1), CPU).apply(x) for at, x in ((of_query, query), (of_key, key))]
        return (turned[0] * turned[1]).sum(2)

    torch.testing.assert_close(product(9, 4), product(1009, 1004), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(product(9, 4), product(9, 5), rtol=1e-3)


def test_lower_precision_stays_and_is_turned_in_fp32() -> None:
    x = drawn(5).to(torch.bfloat16)
    rotation = Rotation(16, range(5), CPU)
    assert torch.equal(rotation.apply(x), rotation.apply(x.float()).to(torch.bfloat16))

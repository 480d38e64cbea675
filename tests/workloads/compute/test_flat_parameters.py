import copy

import pytest
import torch
from torch import nn

from wanbed.workloads.compute.flat_parameters import FlatParameters


def two_layers() -> nn.Sequential:
    module = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2))
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(generator=generator)
    return module


def loss_of(module: nn.Module, step: int) -> torch.Tensor:
    x = torch.randn(7, 3, generator=torch.Generator().manual_seed(step))
    loss: torch.Tensor = module(x).square().mean()
    return loss


def test_parameters_keep_their_values_and_lie_in_one_piece() -> None:
    module = two_layers()
    before = [parameter.detach().clone() for parameter in module.parameters()]
    flat = FlatParameters(module, 0.1)
    assert torch.equal(flat.weights, torch.cat([parameter.flatten() for parameter in before]))
    flat.weights.zero_()
    assert not any(parameter.any() for parameter in module.parameters())


def test_backwards_add_to_the_flat_gradients_in_place() -> None:
    module = two_layers()
    plain = copy.deepcopy(module)
    flat = FlatParameters(module, 0.1)
    address = flat.gradients.data_ptr()
    for step in range(2):
        loss_of(module, step).backward()
        loss_of(plain, step).backward()
    expected = {name: parameter.grad for name, parameter in plain.named_parameters()}
    assert flat.gradients.data_ptr() == address
    assert torch.equal(flat.gradients, torch.cat([gradient.flatten() for gradient in expected.values()]))
    for name, gradient in flat.named_gradients():
        assert torch.equal(gradient, expected[name])


def test_steps_are_those_of_torchs_adamw_over_each_parameter() -> None:
    module = two_layers()
    plain = copy.deepcopy(module)
    flat, optimizer = FlatParameters(module, 0.05), torch.optim.AdamW(plain.parameters(), lr=0.05)
    for step in range(10):
        flat.gradients.zero_()
        loss_of(module, step).backward()
        flat.update()
        optimizer.zero_grad()
        loss_of(plain, step).backward()
        optimizer.step()
    for ours, theirs in zip(module.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_steps_too_small_for_bf16_add_up() -> None:
    module = nn.Linear(4, 1, bias=False).to(torch.bfloat16)
    nn.init.ones_(module.weight)
    flat = FlatParameters(module, 1e-4)
    flat.gradients.fill_(1)
    flat.update()
    # The next number below 1 is 2^-8 away: one step of 1e-4 leaves the rounded weight where it is.
    assert module.weight.tolist() == [[1.0] * 4]
    for _ in range(99):
        flat.update()
    assert module.weight.float().detach().numpy() == pytest.approx(1 - 100 * 1e-4, abs=2**-8)
    assert module.weight.tolist() != [[1.0] * 4]

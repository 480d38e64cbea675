import torch

from wanbed.workloads.model.split_linear import DeferredGradients, Linear


def layers() -> tuple[Linear, Linear, torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    plain, split = Linear(6, 3), Linear(6, 3)
    with torch.no_grad():
        plain.weight.normal_(generator=generator)
        split.weight.copy_(plain.weight)
    return plain, split, torch.randn(2, 5, 6, generator=generator)


def test_a_backward_leaves_the_weights_gradient_until_it_is_computed() -> None:
    plain, split, data = layers()
    split.deferred = deferred = DeferredGradients()
    expected, x = data.clone().requires_grad_(), data.clone().requires_grad_()
    plain(expected).square().sum().backward()
    split(x).square().sum().backward()
    assert split.weight.grad is None
    assert torch.equal(x.grad, expected.grad)
    (gradient,) = deferred.take()
    gradient()
    torch.testing.assert_close(split.weight.grad, plain.weight.grad)


def test_deferred_gradients_add_up_in_place() -> None:
    plain, split, data = layers()
    split.deferred = deferred = DeferredGradients()
    split.weight.grad = memory = torch.ones_like(split.weight)
    for _ in range(2):
        plain(data).sum().backward()
        split(data).sum().backward()
    for gradient in deferred.take():
        gradient()
    assert split.weight.grad is memory
    torch.testing.assert_close(memory, plain.weight.grad + 1)


def test_a_taken_gradient_is_not_returned_again() -> None:
    _, split, data = layers()
    split.deferred = deferred = DeferredGradients()
    split(data).sum().backward()
    assert len(deferred.take()) == 1
    assert deferred.take() == []


def test_an_input_without_a_gradient_gets_none() -> None:
    _, split, data = layers()
    split.deferred = DeferredGradients()
    split(data).sum().backward()
    assert data.grad is None

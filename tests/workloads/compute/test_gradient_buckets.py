"""Buckets are complete in order, each as soon as all gradients in it are final."""

import torch
from torch import Tensor, nn

from wanbed.workloads.compute.gradient_buckets import GradientBuckets


def parameters(*sizes: int) -> tuple[list[nn.Parameter], dict[nn.Parameter, tuple[int, int]]]:
    """Parameters of these sizes, and the elements of each in the flat gradients."""
    found = [nn.Parameter(torch.ones(size)) for size in sizes]
    parts, start = {}, 0
    for parameter in found:
        parts[parameter] = start, start + parameter.numel()
        start += parameter.numel()
    return found, parts


def test_a_bucket_waits_for_every_gradient_in_it_and_for_the_buckets_before_it() -> None:
    (first, second, third), parts = parameters(4, 4, 4)
    complete: list[tuple[int, int]] = []
    buckets = GradientBuckets(parts, [(6, 12), (3, 6), (0, 3)], lambda start, end: complete.append((start, end)))
    buckets.final(first)
    assert complete == []
    buckets.final(third)
    assert complete == []
    buckets.final(second)
    assert complete == [(6, 12), (3, 6), (0, 3)]


def test_a_backward_completes_the_last_layers_before_it_has_reached_the_first() -> None:
    layers = nn.Sequential(*(nn.Linear(3, 3, bias=False) for _ in range(3)))
    parts = {parameter: (9 * number, 9 * number + 9) for number, parameter in enumerate(layers.parameters())}
    seen: list[list[bool]] = []

    def complete(_: int, __: int) -> None:
        seen.append([parameter.grad is not None for parameter in layers.parameters()])

    buckets = GradientBuckets(parts, [(18, 27), (9, 18), (0, 9)], complete)
    with buckets.hooked():
        layers(torch.ones(3)).sum().backward()  # type: ignore[no-untyped-call]
    assert seen == [[False, False, True], [False, True, True], [True, True, True]]


def test_what_has_been_deferred_is_not_final() -> None:
    (first, _), parts = parameters(2, 2)
    complete: list[tuple[int, int]] = []
    buckets = GradientBuckets(parts, [(2, 4), (0, 2)], lambda start, end: complete.append((start, end)))
    deferred: list[Tensor] = [first]
    buckets.final_but(deferred)
    assert complete == [(2, 4)]
    buckets.final(first)
    assert complete == [(2, 4), (0, 2)]

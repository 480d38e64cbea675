"""The outer optimizer on flat parameters, its replicas joined by hand."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from wanbed.workloads.synchronization.outer_optimizer import OuterOptimizer, OuterSteps
from wanbed.workloads.synchronization.synchronization import Synchronization, WireFormat, cut_fragments

DILOCO = Synchronization(1, outer_learning_rate=0.7, outer_momentum=0.9)


def synchronise(outers: list[OuterOptimizer], fragment: int = 0) -> None:
    """Sum the pseudo-gradients as a ring does, and hand the bytes of the sum to every replica."""
    for outer in outers:
        outer.encode(fragment)
    total, *others = (outer.encoded(fragment) for outer in outers)
    for other in others:
        outers[0].add(total, other)
    for other in others:
        other[:] = total
    for outer in outers:
        outer.apply(fragment)


def replicas(count: int, elements: int = 50) -> list[Tensor]:
    torch.manual_seed(count)
    start = torch.randn(elements)
    return [start.clone() for _ in range(count)]


def move(parameters: list[Tensor], seed: int) -> None:
    """Do what inner steps do: move every replica's parameters elsewhere."""
    generator = torch.Generator().manual_seed(seed)
    for each in parameters:
        each.add_(torch.randn(each.shape, generator=generator))


def test_a_learning_rate_of_1_without_momentum_averages_the_parameters() -> None:
    parameters = replicas(3)
    plain = replace(DILOCO, outer_learning_rate=1.0, outer_momentum=0.0)
    outers = [OuterOptimizer(each, plain, 3) for each in parameters]
    for seed in range(4):
        move(parameters, seed)
        average = torch.stack(parameters).mean(dim=0)
        synchronise(outers)
        for each in parameters:
            assert torch.allclose(each, average, atol=1e-6)


def test_the_outer_step_is_torch_s_nesterov() -> None:
    parameters = replicas(2)
    outers = [OuterOptimizer(each, DILOCO, 2) for each in parameters]
    shared = torch.nn.Parameter(parameters[0].clone())
    sgd = torch.optim.SGD([shared], lr=0.7, momentum=0.9, nesterov=True)
    for seed in range(5):
        move(parameters, seed)
        shared.grad = (shared.detach() - torch.stack(parameters)).mean(dim=0)
        sgd.step()
        synchronise(outers)
        assert torch.allclose(parameters[0], shared.detach(), atol=1e-5)


@given(st.sampled_from(WireFormat), st.integers(2, 4), st.integers(1, 3))
def test_replicas_are_alike_to_the_bit_after_each_fragment(wire: WireFormat, count: int, fragments: int) -> None:
    parameters = replicas(count, elements=3000)
    outers = [OuterOptimizer(each, Synchronization(fragments, fragments, wire=wire), count) for each in parameters]
    for turn in range(2 * fragments):
        move(parameters, turn)
        synchronise(outers, turn % fragments)
        part = slice(*cut_fragments(3000, fragments)[turn % fragments])
        assert all(torch.equal(each[part], parameters[0][part]) for each in parameters)


def test_alpha_is_the_share_of_the_local_parameters() -> None:
    whole, mixed = replicas(2), replicas(2)
    takes, keeps = (
        [OuterOptimizer(each, replace(DILOCO, alpha=a), 2) for each in of] for of, a in ((whole, 0.0), (mixed, 0.25))
    )
    move(whole, 1)
    move(mixed, 1)
    local = [each.clone() for each in mixed]
    synchronise(takes)
    synchronise(keeps)
    for own, before, shared in zip(mixed, local, whole, strict=True):
        assert torch.allclose(own, 0.75 * shared + 0.25 * before, atol=1e-6)


def test_a_fragment_leaves_the_other_parameters_as_they_are() -> None:
    parameters = replicas(2, elements=10)
    outers = [OuterOptimizer(each, Synchronization(3, 3), 2) for each in parameters]
    move(parameters, 1)
    before = [each.clone() for each in parameters]
    synchronise(outers, 1)
    for each, old in zip(parameters, before, strict=True):
        assert torch.equal(each[:3], old[:3])
        assert torch.equal(each[6:], old[6:])
    assert torch.equal(parameters[0][3:6], parameters[1][3:6])


def test_what_moves_on_beside_a_synchronisation_is_not_in_it() -> None:
    parameters = replicas(2)
    outers = [
        OuterOptimizer(each, replace(DILOCO, outer_learning_rate=1.0, outer_momentum=0.0), 2) for each in parameters
    ]
    move(parameters, 1)
    average = torch.stack(parameters).mean(dim=0)
    for outer in outers:
        outer.encode(0)
    move(parameters, 2)
    total, other = (outer.encoded(0) for outer in outers)
    outers[0].add(total, other)
    other[:] = total
    for outer in outers:
        outer.apply(0)
    assert torch.allclose(parameters[0], average, atol=1e-6)


def test_the_caller_learns_that_parameters_were_replaced() -> None:
    parameters, changes = replicas(2), list[int]()
    outers = [OuterOptimizer(each, DILOCO, 2, changed=lambda: changes.append(1)) for each in parameters]
    synchronise(outers)
    assert len(changes) == 2


@pytest.mark.parametrize("wire", WireFormat)
def test_the_encoded_pseudo_gradient_has_the_size_that_is_known_ahead(wire: WireFormat) -> None:
    outer = OuterOptimizer(torch.zeros(5000), Synchronization(2, 2, wire=wire), 2)
    outer.encode(1)
    assert outer.encoded(1).nbytes == wire.encoded_bytes(2500)


def test_a_replica_that_comes_back_goes_on_to_the_bit_as_those_that_never_left() -> None:
    parameters = replicas(3)
    outers = [OuterOptimizer(each, DILOCO, 3) for each in parameters]
    for seed in range(3):
        move(parameters, seed)
        synchronise(outers)
    parameters[2] = torch.randn(50)
    outers[2] = OuterOptimizer(parameters[2], DILOCO, 3)
    outers[2].take_state(outers[0].state(2 * 4 * 50))
    assert torch.equal(parameters[2], parameters[0])
    for seed in range(3, 5):
        move(parameters, seed)
        synchronise(outers)
        assert torch.equal(parameters[2], parameters[0])
    assert bytes(outers[2].state(2 * 4 * 50)) == bytes(outers[0].state(2 * 4 * 50))


def test_a_sum_of_fewer_replicas_is_divided_by_their_number() -> None:
    parameters = replicas(3)
    plain = replace(DILOCO, outer_learning_rate=1.0, outer_momentum=0.0)
    outers = [OuterOptimizer(each, plain, 3) for each in parameters]
    move(parameters, 1)
    average = torch.stack(parameters[:2]).mean(dim=0)
    for outer in outers[:2]:
        outer.encode(0)
    outers[0].add(outers[0].encoded(0), outers[1].encoded(0))
    outers[0].apply(0, 2)
    assert torch.allclose(parameters[0], average, atol=1e-6)


def test_a_state_of_another_size_is_refused_either_way() -> None:
    outer, larger = (OuterOptimizer(torch.zeros(count), DILOCO, 2) for count in (5, 6))
    assert outer.state(40).nbytes == 40
    with pytest.raises(ValueError, match="has 40 bytes, and 48 are expected"):
        outer.state(48)
    with pytest.raises(ValueError, match="has 40 bytes, and 48 are expected"):
        larger.take_state(outer.state(40))


def test_taking_over_a_state_replaces_momentum_and_tells_the_caller() -> None:
    parameters, changes = replicas(2), list[int]()
    first = OuterOptimizer(parameters[0], DILOCO, 1)
    move(parameters, 1)
    first.encode(0)
    first.apply(0)
    second = OuterOptimizer(parameters[1], DILOCO, 1, changed=lambda: changes.append(1))
    second.take_state(first.state(400))
    assert changes == [1]
    assert bytes(second.state(400)) == bytes(first.state(400))
    assert torch.equal(parameters[1], parameters[0])


def test_steps_are_timed_and_a_state_is_given_back_once_it_has_been_taken_over() -> None:
    released: list[memoryview] = []
    calls: list[str] = []

    def timed(work: Callable[[], None]) -> tuple[int, int]:
        work()
        calls.append("timed")
        return 3, 5

    parameters = replicas(2)
    steps = [OuterSteps(OuterOptimizer(each, DILOCO, 2), timed, released.append) for each in parameters]
    move(parameters, 1)
    assert [each.encode(0) for each in steps] == [(3, 5)] * 2
    steps[0].add_encoded(steps[0].encoded(0), steps[1].encoded(0))
    steps[1].encoded(0)[:] = steps[0].encoded(0)
    assert [each.apply(0, 2) for each in steps] == [(3, 5)] * 2
    assert calls == ["timed"] * 4
    assert torch.equal(parameters[0], parameters[1])
    state = steps[0].state(400)
    steps[1].take_state(state)
    assert released == [state]

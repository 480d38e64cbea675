import pytest
import torch

from tests.support.workloads.reference_llama import TINY
from wanbed.workloads.inference.llama_layers import LlamaLayers, build_layers

ALL_LAYERS = range(TINY.layers)
CPU = torch.device("cpu")


def tiny(layers: range, seed: int = 5, dtype: torch.dtype = torch.float32) -> LlamaLayers:
    return build_layers(TINY, layers, seed=seed, dtype=dtype, device=CPU)


def cuts(depth: int) -> list[range]:
    sizes = TINY.stage_layers(depth)
    return [range(sum(sizes[:stage]), sum(sizes[: stage + 1])) for stage in range(depth)]


@pytest.mark.parametrize("depth", [1, 2, 3, 8])
def test_weights_and_their_names_are_the_same_however_the_model_is_cut(depth: int) -> None:
    whole = dict(tiny(ALL_LAYERS).named_parameters())
    cut = [entry for layers in cuts(depth) for entry in tiny(layers).named_parameters()]
    assert len(cut) == len(whole)
    for name, parameter in cut:
        assert torch.equal(parameter, whole[name])


@pytest.mark.parametrize("depth", [1, 2, 4, 8])
def test_stages_have_the_weight_bytes_that_the_model_counts(depth: int) -> None:
    for layers in cuts(depth):
        counted = TINY.weight_bytes(len(layers), embedding=layers.start == 0, head=layers.stop == TINY.layers)
        assert sum(parameter.nbytes for parameter in tiny(layers).parameters()) == counted


def test_no_two_parameters_have_the_same_weights() -> None:
    drawn = [parameter.flatten()[:16] for parameter in tiny(ALL_LAYERS).parameters() if parameter.dim() > 1]
    assert len({tuple(weights.tolist()) for weights in drawn}) == len(drawn)


def test_another_seed_gives_other_weights() -> None:
    one, other = (tiny(ALL_LAYERS, seed).head for seed in (5, 6))
    assert one is not None
    assert other is not None
    assert not torch.equal(one.weight, other.weight)


def test_bf16_weights_are_those_of_fp32_rounded() -> None:
    exact = dict(tiny(ALL_LAYERS).named_parameters())
    for name, parameter in tiny(ALL_LAYERS, dtype=torch.bfloat16).named_parameters():
        assert torch.equal(parameter, exact[name].to(torch.bfloat16))


def test_weights_keep_activations_of_the_order_of_one() -> None:
    deviations = {name: parameter.std().item() for name, parameter in tiny(ALL_LAYERS).named_parameters()}
    assert deviations["tokens.weight"] == pytest.approx(1, rel=0.05)
    assert deviations["head.weight"] == pytest.approx(64**-0.5, rel=0.05)
    assert deviations["layers.2.attention.output.weight"] == pytest.approx(64**-0.5, rel=0.05)
    assert deviations["layers.2.feed_forward.output.weight"] == pytest.approx(160**-0.5, rel=0.05)


def test_weights_need_no_gradient() -> None:
    assert not any(parameter.requires_grad for parameter in tiny(ALL_LAYERS).parameters())

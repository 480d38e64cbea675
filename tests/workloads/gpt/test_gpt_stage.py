import math

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

from wanbed.workloads.gpt.gpt_config import GptConfig
from wanbed.workloads.gpt.gpt_stage import Block, DeferredGradients, Linear, build_stage, language_loss


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


CONFIG = GptConfig(layers=4, hidden=32, context=16, heads=4, vocabulary=64)

CUTS = [1, 2, 3, 4]


def stages_of(stages: int, dtype: torch.dtype = torch.float32) -> list[nn.Module]:
    return [build_stage(CONFIG, stage, stages, 5, dtype) for stage in range(stages)]


@pytest.mark.parametrize("stages", CUTS)
def test_weights_and_their_names_are_the_same_however_the_model_is_cut(stages: int) -> None:
    whole = dict(build_stage(CONFIG, 0, 1, 5, torch.float32).named_parameters())
    cut = [entry for stage in stages_of(stages) for entry in stage.named_parameters()]
    assert len(cut) == len(whole)
    for name, parameter in cut:
        assert torch.equal(parameter, whole[name])


@pytest.mark.parametrize("stages", CUTS)
def test_stages_have_as_many_weights_as_the_config_says(stages: int) -> None:
    for stage, module in enumerate(stages_of(stages)):
        assert sum(parameter.numel() for parameter in module.parameters()) == CONFIG.parameters(stage, stages)


@pytest.mark.parametrize("stages", CUTS)
def test_stages_one_after_another_compute_what_the_whole_does(stages: int) -> None:
    tokens = torch.arange(16).unsqueeze(0) * 7 % 64
    expected = build_stage(CONFIG, 0, 1, 5, torch.float32)(tokens)
    x = tokens
    for number, stage in enumerate(stages_of(stages)):
        x = stage(x)
        assert x.shape == (1, 16, 64 if number == stages - 1 else 32)
    assert torch.equal(x, expected)


def test_bf16_weights_are_those_of_fp32_rounded() -> None:
    exact = dict(build_stage(CONFIG, 0, 1, 5, torch.float32).named_parameters())
    for name, parameter in build_stage(CONFIG, 0, 1, 5, torch.bfloat16).named_parameters():
        assert torch.equal(parameter, exact[name].to(torch.bfloat16))


def test_another_seed_gives_other_weights() -> None:
    one, other = (build_stage(CONFIG, 0, 1, seed, torch.float32).head for seed in (5, 6))
    assert one is not None
    assert other is not None
    assert not torch.equal(one.weight, other.weight)


def test_weights_deviate_as_gpt_2s_do() -> None:
    module = build_stage(GptConfig(2, 256, 16, 4, 512), 0, 1, 5, torch.float32)
    deviations = {name: parameter.std().item() for name, parameter in module.named_parameters()}
    assert deviations["head.weight"] == pytest.approx(0.02, rel=0.05)
    assert deviations["layers.1.attention.query_key_value.weight"] == pytest.approx(0.02, rel=0.05)
    assert deviations["layers.1.attention.output.weight"] == pytest.approx(0.01, rel=0.05)
    assert deviations["layers.1.feed_forward.output.weight"] == pytest.approx(0.01, rel=0.05)


def test_a_new_model_knows_nothing() -> None:
    tokens = torch.arange(17).unsqueeze(0)
    logits = build_stage(CONFIG, 0, 1, 5, torch.float32)(tokens[:, :-1])
    assert language_loss(logits, tokens[:, 1:]).item() == pytest.approx(math.log(64), rel=0.02)


def test_no_token_sees_a_later_one() -> None:
    model = build_stage(CONFIG, 0, 1, 5, torch.float32)
    one = torch.arange(16).unsqueeze(0)
    other = one.clone()
    other[0, 9:] = 63
    assert torch.equal(model(one)[:, :9], model(other)[:, :9])
    assert not torch.equal(model(one)[:, 9:], model(other)[:, 9:])


def test_a_layer_is_torchs_own_pre_norm_transformer_layer() -> None:
    block = build_stage(CONFIG, 1, 4, 5, torch.float32).layers["1"]
    assert isinstance(block, Block)
    theirs = nn.TransformerEncoderLayer(
        32, 4, dim_feedforward=128, dropout=0, activation="gelu", batch_first=True, norm_first=True
    )
    ours_to_theirs = {
        "attention_norm": "norm1",
        "feed_forward_norm": "norm2",
        "attention.query_key_value.weight": "self_attn.in_proj_weight",
        "attention.output": "self_attn.out_proj",
        "feed_forward.inner": "linear1",
        "feed_forward.output": "linear2",
    }
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            parameter.zero_() if name.endswith("bias") else None
        for name, parameter in block.named_parameters():
            ours = next(prefix for prefix in ours_to_theirs if name.startswith(prefix))
            theirs.get_parameter(name.replace(ours, ours_to_theirs[ours])).copy_(parameter)
    x = torch.randn(1, 16, 32, generator=torch.Generator().manual_seed(1))
    mask = nn.Transformer.generate_square_subsequent_mask(16)
    torch.testing.assert_close(block(x), theirs(x, src_mask=mask, is_causal=True))


@pytest.mark.parametrize("stages", CUTS)
def test_a_forward_takes_the_operations_that_the_config_says(stages: int) -> None:
    x = torch.arange(16).unsqueeze(0)
    for stage, module in enumerate(stages_of(stages)):
        # The kernel for every product apart is the one whose operations torch can count on the CPU.
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            x = module(x)
        assert counter.get_total_flops() == CONFIG.forward_flops(stage, stages)


def test_the_loss_of_bf16_logits_is_computed_in_fp32() -> None:
    logits = torch.randn(1, 16, 64, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16)
    targets = torch.arange(16).unsqueeze(0)
    loss = language_loss(logits, targets)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(cross_entropy(logits[0].double(), targets[0]).item(), rel=1e-6)

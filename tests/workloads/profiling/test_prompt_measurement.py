import pytest
import torch

from wanbed.workloads.compute.device.torch_device import CpuDevice
from wanbed.workloads.inference.inference_model import InferenceModel
from wanbed.workloads.inference.inference_stage import InferenceStage
from wanbed.workloads.profiling.prompt_measurement import measure_chunk
from wanbed.workloads.profiling.repeats import Pace

TOY = InferenceModel("toy", 4, 8, 2, 1, 4, 16, 32, 4)


@pytest.mark.parametrize("layers", [range(4), range(1, 3), range(3, 4)])
@pytest.mark.parametrize("prior_tokens", [0, 1, 6])
def test_a_chunk_after_its_prior_tokens_goes_through_any_layers_once_a_pass(
    layers: range, prior_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = InferenceStage(TOY, layers, seed=0, device=CpuDevice(), precision="fp32")
    prefilled: list[tuple[int, int, int]] = []
    outputs: list[torch.Tensor] = []
    real = InferenceStage.prefill_chunk

    def counted(self, cache, inputs, prior_tokens):  # type: ignore[no-untyped-def]
        outputs.append(real(self, cache, inputs, prior_tokens))
        prefilled.append((len(inputs), prior_tokens, cache.tokens))
        return outputs[-1]

    monkeypatch.setattr(InferenceStage, "prefill_chunk", counted)
    found = measure_chunk(stage, 5, prior_tokens, Pace(7, 0, 0))
    assert len(found) == 7
    assert min(found) > 0
    prior = [(prior_tokens, 0, prior_tokens)] if prior_tokens else []
    assert prefilled[: len(prior)] == prior
    assert prefilled[len(prior) :] == [(5, prior_tokens, prior_tokens + 5)] * (3 + 7)
    assert all(torch.equal(each, outputs[-1]) for each in outputs[len(prior) :])


def test_the_tokens_of_a_chunk_differ() -> None:
    stage = InferenceStage(TOY, range(4), seed=0, device=CpuDevice(), precision="fp32")
    begun: list[torch.Tensor] = []
    real = stage.begin_chunk

    def kept(cache, inputs, prior_tokens):  # type: ignore[no-untyped-def]
        begun.append(inputs)
        return real(cache, inputs, prior_tokens)

    stage.begin_chunk = kept  # type: ignore[method-assign]
    measure_chunk(stage, 20, 0, Pace(7, 0, 0))
    assert len(begun[0].unique()) > 5

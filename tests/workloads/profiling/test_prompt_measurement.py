import pytest

from workloads.compute.device.torch_device import CpuDevice
from workloads.inference.inference_model import InferenceModel
from workloads.inference.inference_stage import InferenceStage
from workloads.profiling.prompt_measurement import measure_prompt

TOY = InferenceModel("toy", 4, 8, 2, 1, 4, 16, 32, 4)


@pytest.mark.parametrize("layers", [range(4), range(1, 3), range(3, 4)])
def test_a_prompt_goes_through_any_layers_once_a_pass(layers: range, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = InferenceStage(TOY, layers, seed=0, device=CpuDevice(), precision="fp32")
    prefilled: list[tuple[int, int]] = []
    real = InferenceStage.prefill_chunk

    def counted(self, cache, inputs, prior_tokens):  # type: ignore[no-untyped-def]
        outputs = real(self, cache, inputs, prior_tokens)
        prefilled.append((len(inputs), cache.tokens))
        return outputs

    monkeypatch.setattr(InferenceStage, "prefill_chunk", counted)
    found = measure_prompt(stage, 5, 7, warmup_ns=0, repeat_ns=0)
    assert len(found) == 7
    assert min(found) > 0
    assert set(prefilled) == {(5, 5)}
    assert len(prefilled) == 3 + 7

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.workloads.model.gpt_config import GptConfig
from wanbed.workloads.profiles.compute_profile import MeasuredProfile
from wanbed.workloads.profiling.model_parts import model_times, stages_to_measure

TINY = GptConfig(layers=4, hidden=128, context=128, heads=4, vocabulary=256)
ACTIONS = ("forward", "recompute", "backward", "backward_input", "backward_weight", "optimizer")


def figures(base_ns: int) -> Mapping[str, Sequence[int]]:
    """Seven repeats of each action, whose medians differ from action to action."""
    return {action: [base_ns * (place + 1) + each for each in range(-3, 4)] for place, action in enumerate(ACTIONS)}


def profile_of(layers: int, *bases_ns: int) -> MeasuredProfile:
    stages = [
        stage.measured(figures(base_ns))
        for stage, base_ns in zip(stages_to_measure(TINY, layers), bases_ns, strict=True)
    ]
    return MeasuredProfile(
        title="t",
        basis="measured",
        device="d",
        precision="fp32",
        source=({"figures": "all", "origin": "made up"},),  # type: ignore[arg-type]
        models=(model_times(TINY, stages),),
    )


@pytest.mark.parametrize("layers", [1, 2, 5])
def test_stages_to_measure_have_as_many_layers_each_and_the_models_own_dimensions(layers: int) -> None:
    stages = stages_to_measure(TINY, layers)
    assert [(stage.position, stage.layers) for stage in stages] == [
        ("first", layers),
        ("middle", layers),
        ("last", layers),
    ]
    assert {(stage.config.hidden, stage.config.context, stage.config.vocabulary) for stage in stages} == {
        (128, 128, 256)
    }


@given(
    layers=st.integers(1, 6),
    middle_ns=st.integers(1_000, 10**9),
    embedding_ns=st.integers(0, 10**9),
    head_ns=st.integers(0, 10**9),
)
def test_a_model_cut_as_it_was_measured_takes_what_was_measured(
    layers: int, middle_ns: int, embedding_ns: int, head_ns: int
) -> None:
    bases_ns = middle_ns + embedding_ns, middle_ns, middle_ns + head_ns
    profile = profile_of(layers, *bases_ns)
    cut = GptConfig(layers=3 * layers, hidden=128, context=128, heads=4, vocabulary=256)
    for base_ns, times in zip(bases_ns, profile.stage_times(cut, 3), strict=True):
        for place, action in enumerate(ACTIONS):
            assert abs(getattr(times, f"{action}_ns") - base_ns * (place + 1)) <= layers


def test_an_end_that_takes_less_than_the_middle_adds_nothing() -> None:
    (model,) = profile_of(1, 900, 1_000, 1_100).models
    assert set(model.embedding.model_dump().values()) == {0}
    assert model.head.forward_ns == 100


def test_a_profile_keeps_what_it_was_taken_from() -> None:
    (model,) = profile_of(2, 3_000, 2_000, 5_000).models
    assert [stage.forward.median_ns for stage in model.stages] == [3_000, 2_000, 5_000]
    assert [stage.forward.repeats_ns for stage in model.stages][1] == tuple(range(1_997, 2_004))
    # Forward, recompute and backward are 1, 2 and 3 times as long here, and 4 times the forward's operations.
    assert model.stages[1].flops_per_s == pytest.approx(4 * model.stages[1].forward_flops / 12_000e-9)

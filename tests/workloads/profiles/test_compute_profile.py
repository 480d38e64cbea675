import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.ground.errors import InputError
from wanbed.ground.strict_model import parse_model
from wanbed.workloads.gpt.gpt_config import GptConfig
from wanbed.workloads.profiles.catalogue import load_profile
from wanbed.workloads.profiles.compute_profile import (
    EstimatedProfile,
    MeasuredConditions,
    MeasuredProfile,
    MeasuredStageCosts,
    ceiling_of,
    measured_time,
)


def test_the_spread_is_the_distance_of_the_quartiles_over_the_median() -> None:
    found = measured_time([104, 100, 98, 102, 100, 96, 900])
    assert found.median_ns == 100
    assert found.spread == pytest.approx((103 - 99) / 100)
    assert found.repeats_ns == (104, 100, 98, 102, 100, 96, 900)


@pytest.mark.parametrize(("wide_ns", "steady"), [(101, True), (103, True), (104, False)])
def test_a_spread_above_three_percent_is_not_steady(wide_ns: int, steady: bool) -> None:
    assert measured_time([100] * 5 + [wide_ns] * 4).steady is steady


@given(st.lists(st.integers(0, 10**12), min_size=2, max_size=20))
def test_any_times_have_a_median_among_them_and_a_spread(times_ns: list[int]) -> None:
    found = measured_time(times_ns)
    assert found.median_ns in times_ns
    assert found.spread >= 0


def test_the_ceiling_is_two_cubes_in_the_median_time() -> None:
    assert ceiling_of(1000, [2_000_000_000] * 7).flops_per_s == pytest.approx(1e9)


def test_conditions_of_files_without_kernels_and_clocks_are_read() -> None:
    state = {"clock_hz": 1, "memory_clock_hz": None, "temperature_c": None, "power_w": None}
    conditions = MeasuredConditions.model_validate(
        {
            "measured_at": "2026-01-01T00:00:00+00:00",
            "driver": None,
            "versions": {},
            "threads": 1,
            "ceiling": ceiling_of(8, [1] * 7).model_dump(exclude={"clocks"}),
            "before": state,
            "after": {**state, "throttled": ("thermal limit",)},
        }
    )
    assert (conditions.deterministic, conditions.during, conditions.ceiling.clocks) == (None, None, None)
    assert conditions.throttled == ("thermal limit",)


GPT_A = GptConfig(layers=12, hidden=4096, context=4096, heads=32, vocabulary=50_304)

GPT_B = GptConfig(layers=12, hidden=8192, context=6144, heads=64, vocabulary=50_304)

SOURCE = [{"figures": "all", "origin": "made up for this test"}]

ESTIMATED = {
    "title": "a device",
    "basis": "estimated",
    "device": "none that exists",
    "precision": "bf16",
    "source": SOURCE,
    "peak_flops_per_s": 1e15,
    "efficiency": 0.4,
    "memory_bandwidth_bytes_per_s": 1e12,
    "optimizer_bytes_per_parameter": 20,
}


def times(scale: int) -> dict[str, int]:
    """Six times that differ, so that none can stand in for another."""
    names = ("forward", "backward", "recompute", "backward_input", "backward_weight", "optimizer")
    return {f"{name}_ns": scale * (position + 1) for position, name in enumerate(names)}


MEASURED = {
    "title": "a device",
    "basis": "measured",
    "device": "none that exists",
    "precision": "fp32",
    "source": SOURCE,
    "model": {"hidden": 4096, "context": 4096, "heads": 32, "vocabulary": 50_304},
    "embedding": times(1),
    "layer": times(1000),
    "head": times(100_000),
}


def test_the_a100_is_estimated_and_says_on_what_assumption() -> None:
    profile = load_profile("a100")
    assert isinstance(profile, EstimatedProfile)
    assert profile.basis == "estimated"
    assert (profile.peak_flops_per_s, profile.efficiency, profile.precision) == (312e12, 0.5, "bf16")
    (efficiency,) = (source for source in profile.source if source.figures == "efficiency")
    assert efficiency.origin.startswith("an assumption")


def test_two_layers_of_gpt_a_take_an_a100_21_to_27_ms_forward() -> None:
    middle = load_profile("a100").stage_times(GPT_A, 6)[1:-1]
    assert len(set(middle)) == 1
    assert 21_000_000 < middle[0].forward_ns < 27_000_000


def test_an_estimate_follows_from_operations_and_bytes() -> None:
    profile = EstimatedProfile.model_validate(ESTIMATED)
    for stage, found in enumerate(profile.stage_times(GPT_B, 5)):
        assert found.forward_ns == pytest.approx(GPT_B.forward_flops(stage, 5) / 4e14 * 1e9, rel=1e-6)
        assert found.recompute_ns == found.forward_ns
        assert found.backward_ns == 2 * found.forward_ns
        assert found.optimizer_ns == pytest.approx(GPT_B.parameters(stage, 5) * 20 / 1e12 * 1e9, rel=1e-6)


@given(stages=st.integers(1, 12))
def test_the_parts_of_a_backward_make_the_whole(stages: int) -> None:
    for found in load_profile("a100").stage_times(GPT_A, stages):
        assert found.backward_input_ns + found.backward_weight_ns == found.backward_ns


def test_measured_times_are_summed_over_a_stages_parts() -> None:
    profile = MeasuredProfile.model_validate(MEASURED)
    layers = GptConfig(layers=5, hidden=4096, context=4096, heads=32, vocabulary=50_304)
    assert profile.stage_times(layers, 3) == (
        MeasuredStageCosts(**times(2 * 1000 + 1)),
        MeasuredStageCosts(**times(2 * 1000)),
        MeasuredStageCosts(**times(1000 + 100_000)),
    )
    assert profile.stage_times(layers, 1) == (MeasuredStageCosts(**times(5 * 1000 + 1 + 100_000)),)


@pytest.mark.parametrize("field", ["hidden", "context", "heads", "vocabulary"])
def test_a_measured_profile_is_refused_for_a_model_that_was_not_measured(field: str) -> None:
    numbers = {"hidden": 4096, "context": 4096, "heads": 32, "vocabulary": 50_304, "layers": 12}
    numbers[field] *= 2
    with pytest.raises(InputError, match=rf"^profile 'a device': measured with {field} \d+, not {numbers[field]}: "):
        MeasuredProfile.model_validate(MEASURED).stage_times(GptConfig(**numbers), 6)


@pytest.mark.parametrize(("document", "element_bytes"), [(ESTIMATED, 2), (MEASURED, 4)])
def test_sizes_follow_the_precision(document: dict[str, object], element_bytes: int) -> None:
    model = EstimatedProfile if document is ESTIMATED else MeasuredProfile
    profile = model.model_validate(document)
    assert profile.activation_bytes(GPT_B) == element_bytes * 6144 * 8192
    assert sum(profile.gradient_bytes(GPT_B, 6)) == element_bytes * GPT_B.parameters(0, 1)
    assert len(profile.gradient_bytes(GPT_B, 6)) == 6


def test_more_stages_than_layers_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^stages: 12 layers make 1 to 12 stages, not 13"):
        load_profile("a100").stage_times(GPT_A, 13)


def models(*hidden: int) -> dict[str, object]:
    parts = {name: MEASURED[name] for name in ("embedding", "layer", "head")}
    numbers = {"context": 4096, "heads": 32, "vocabulary": 50_304}
    entries = [{"model": {**numbers, "hidden": each}, **parts} for each in hidden]
    return {**{name: value for name, value in MEASURED.items() if name not in {*parts, "model"}}, "models": entries}


def test_one_file_holds_for_every_model_that_was_measured() -> None:
    profile = MeasuredProfile.model_validate(models(4096, 8192))
    for hidden in (4096, 8192):
        config = GptConfig(layers=2, hidden=hidden, context=4096, heads=32, vocabulary=50_304)
        assert len(profile.stage_times(config, 2)) == 2


def test_a_model_that_was_not_measured_is_named() -> None:
    profile = MeasuredProfile.model_validate(models(4096, 8192))
    config = GptConfig(layers=2, hidden=2048, context=4096, heads=32, vocabulary=50_304)
    with pytest.raises(InputError, match=r"measured with hidden 4096 and 8192, not 2048: measure this model"):
        profile.stage_times(config, 2)


def test_a_mixture_of_measured_models_is_refused() -> None:
    document = models(4096, 8192)
    document["models"][1]["model"]["context"] = 6144  # type: ignore[index]
    config = GptConfig(layers=2, hidden=8192, context=4096, heads=32, vocabulary=50_304)
    with pytest.raises(InputError, match=r"none of its models in these dimensions together: measure this model"):
        MeasuredProfile.model_validate(document).stage_times(config, 2)


def test_a_file_of_one_model_reads_the_same_in_either_form() -> None:
    assert MeasuredProfile.model_validate(MEASURED) == MeasuredProfile.model_validate(models(4096))


@pytest.mark.parametrize(
    ("basis", "changes"),
    [
        (EstimatedProfile, {"peak_flops_per_s": 1e-300}),
        (EstimatedProfile, {"peak_flops_per_s": 10**39}),
        (EstimatedProfile, {"efficiency": 1e-320}),
        (EstimatedProfile, {"memory_bandwidth_bytes_per_s": 1}),
        (EstimatedProfile, {"optimizer_bytes_per_parameter": 1e300}),
        (MeasuredProfile, {"layer": {**times(1), "forward_ns": 86_400 * 10**9 + 1}}),
        (MeasuredProfile, {"head": {**times(1), "optimizer_ns": 10**39}}),
        (MeasuredProfile, {"model": {**MEASURED["model"], "hidden": 2**20 + 1}}),
    ],
)
def test_a_figure_beyond_every_device_is_refused_with_its_field(basis: type, changes: dict[str, object]) -> None:
    written = ESTIMATED if basis is EstimatedProfile else MEASURED
    with pytest.raises(InputError, match=rf"^a\.json: .*{next(iter(changes))}.*: .* is (not )?(above|below) "):
        parse_model(basis, {**written, **changes}, "a.json")


def test_the_times_hold_for_any_number_of_layers() -> None:
    config = GptConfig(layers=2**16, hidden=4096, context=4096, heads=32, vocabulary=50_304)
    (stage,) = parse_model(MeasuredProfile, MEASURED, "a.json").stage_times(config, 1)
    assert stage.forward_ns == 1 + 2**16 * 1000 + 100_000

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.runner.planner.families.family_layout import Family, FamilyLayout, family_layouts

GPUS = st.dictionaries(st.sampled_from("abcd"), st.integers(1, 40), min_size=2, max_size=4)


def test_hierarchical_replicas_have_one_stage_and_as_many_in_each_datacenter_as_the_smallest_holds() -> None:
    assert family_layouts(Family.HIERARCHICAL, {"a": 4, "b": 6}, 3, 32) == (FamilyLayout(1, 4, 2, 4),)


def test_replicas_of_diloco_have_any_number_of_stages_that_divides_the_plan_s() -> None:
    layouts = family_layouts(Family.DILOCO, {"a": 4, "b": 6}, 6, 24)
    assert layouts == (FamilyLayout(1, 4, 2, 3), FamilyLayout(2, 2, 2, 6), FamilyLayout(3, 1, 2, 12))


@given(GPUS, st.integers(1, 24), st.integers(1, 500))
def test_layouts_fit_and_train_on_about_as_many_sequences(gpus: dict[str, int], stages: int, wanted: int) -> None:
    for layout in family_layouts(Family.DILOCO, gpus, stages, wanted):
        assert layout.stages * layout.replicas_per_datacenter <= min(gpus.values())
        assert layout.datacenters == len(gpus)
        sequences = layout.replicas * layout.microbatches
        assert abs(sequences - wanted) <= layout.replicas / 2 or layout.microbatches == 1


def test_a_single_datacenter_has_nothing_to_lay_out() -> None:
    assert family_layouts(Family.HIERARCHICAL, {"a": 8}, 2, 8) == ()
    with pytest.raises(ValueError, match="pipelines have candidates"):
        family_layouts(Family.PIPELINE, {"a": 8, "b": 8}, 2, 8)

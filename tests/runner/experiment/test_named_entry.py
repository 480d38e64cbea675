import pytest

from wanbed.ground.strict_model import InputError
from wanbed.runner.experiment.named_entry import can_be_named, entry_step, is_entry_step, new_link, position_of, refusal
from wanbed.runner.experiment.variant_spec import VariantSpec
from wanbed.testbed.network.topology_spec import DatacenterSpec, LinkSpec, WanSpec

LINKS = [
    {"between": ["east", "west"]},
    {"from": "west", "to": "east"},
    {"between": ["north", "east"]},
    "no mapping",
    {"from": "north"},
]


@pytest.mark.parametrize(
    ("named", "position"),
    [
        ("east, west", 0),
        ("west,east", 0),
        ("west to east", 1),
        (" west to  east ", 1),
        ("east to west", None),
        ("east, north", 2),
        ("west, north", None),
        ("north to x", None),
    ],
)
def test_a_link_is_found_by_its_ends_in_any_order_and_one_direction_only_in_its_own(
    named: str, position: int | None
) -> None:
    assert position_of(entry_step(named), LINKS) == position


def test_an_entry_with_a_name_is_found_by_it_alone() -> None:
    entries = [{"schedule": "gpipe"}, {"name": "a b"}, {"name": 7}, {"name": "a b"}]
    assert position_of(entry_step("a b"), entries[1:]) == 0
    assert position_of(entry_step(" 7 "), entries[1:]) == 1
    assert position_of(entry_step("a, b"), entries[1:]) is None


def test_a_new_link_has_its_ends_the_same_however_they_are_written() -> None:
    assert new_link("[west, east]") == new_link("[ east ,west ]") == {"between": ["east", "west"]}
    assert new_link("[west  to east ]") == {"from": "west", "to": "east"}
    for written in ("[east]", "[a, b, c]"):
        with pytest.raises(InputError, match="names no link"):
            new_link(written)


def test_only_steps_in_brackets_name_entries_and_only_of_lists_whose_entries_have_names() -> None:
    assert is_entry_step("[a]")
    assert not any(is_entry_step(step) for step in ("a", "[a", "a]", "0"))
    assert all(can_be_named(kind) for kind in (DatacenterSpec, VariantSpec, LinkSpec))
    assert not any(can_be_named(kind) for kind in (WanSpec, str, int))


def test_a_name_that_is_not_there_is_refused_with_the_nearest_or_all_that_are() -> None:
    entries = [{"name": "gpipe"}, {"schedule": "atlas"}, "text", {"name": "varuna"}]
    assert refusal("variants", "[gpip]", entries) == "variants has no entry 'gpip' here, did you mean 'gpipe'?"
    assert refusal("variants", "[zzz]", entries) == "variants has no entry 'zzz' here, known here: gpipe, varuna"
    assert refusal("variants", "[zzz]", []).endswith("known here: none")

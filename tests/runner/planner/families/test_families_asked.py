from typing import Any

import pytest

from wanbed.ground.strict_model import InputError
from wanbed.runner.planner.families import families_asked
from wanbed.runner.planner.families.families_asked import FamiliesAsked, family_notes, same_worth
from wanbed.runner.planner.families.family_layout import Family
from wanbed.runner.planner.families.family_pricing import FamilyPrice


@pytest.mark.parametrize(("names", "found"), [(["diloco"], ("diloco",)), (["pipeline", " diloco", "diloco"], None)])
def test_families_are_named_and_priced_once(names: list[str], found: tuple[str, ...] | None) -> None:
    assert FamiliesAsked.named(names).families == (found or (Family.PIPELINE, Family.DILOCO))


@pytest.mark.parametrize(
    ("names", "sync_every", "swap", "text"),
    [
        (["diloco", "dilco"], None, None, "--families: 'dilco' is not known: give some of pipeline, hierarchical, dil"),
        (["hierarchical"], 5, None, "--sync-every: only DiLoCo and ATOM synchronise: give --families diloco or atom"),
        (["diloco"], 0, None, "--sync-every: 0 is below 1"),
        (["diloco"], None, "12GB/s", "--swap: only ATOM swaps layers: give --families atom too"),
        (["atom"], None, None, "--families atom: say how fast layers are loaded into a GPU, like --swap 12GB/s"),
        (["atom"], None, "12GB", "--swap: '12GB' is not bytes per second: write it like 12GB/s"),
    ],
)
def test_what_cannot_be_asked_is_refused(names: list[str], sync_every: int | None, swap: str | None, text: str) -> None:
    with pytest.raises(InputError) as refusal:
        FamiliesAsked.named(names, sync_every, swap)
    assert str(refusal.value).startswith(text)


def test_tokens_of_replicas_that_synchronise_seldom_are_not_worth_the_same() -> None:
    prices = [FamilyPrice(family, "", 1, 1.0, 1.0, 1, 1) for family in Family]
    told = {note.split(":")[0]: "tokens a second are not worth the same" in note for note in family_notes(prices)}
    assert told == {"diloco": True, "atom": True, "hierarchical": False}
    assert [family for family in Family if not same_worth(family)] == [Family.DILOCO, Family.ATOM]


def test_a_family_that_does_not_fit_is_told_and_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    own = FamilyPrice(Family.PIPELINE, "", 1, 1.0, 1.0, 1, 1)
    monkeypatch.setattr(families_asked, "planned_family", lambda task, plan: own)
    monkeypatch.setattr(families_asked, "priced_family", lambda *_, **__: None)
    told: list[str] = []
    unused: Any = None
    found = FamiliesAsked((Family.PIPELINE, Family.DILOCO)).prices(unused, unused, unused, told.append)
    assert found == (own,)
    assert told == ["diloco: it needs whole replicas in two datacenters or more, and none fits"]

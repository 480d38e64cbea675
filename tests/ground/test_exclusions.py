from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest
from pydantic import Field

from tests.support.runner.taken_values import words_of_refusal
from wanbed.ground.errors import InputError
from wanbed.ground.exclusions import (
    Declared,
    Exclusion,
    KnownName,
    Refusal,
    as_check,
    check_declared,
    check_exclusions,
    first_refusal,
)
from wanbed.ground.strict_model import StrictModel


class LanesSpec(StrictModel):
    colour: str = "none"
    lanes: int = 1
    origin: str | None = Field(default=None, alias="from")


class RoadSpec(StrictModel):
    links: tuple[LanesSpec, ...] = ()
    bridge: LanesSpec | None = None
    toll: bool = False
    free: bool = False

    def exclusions(self) -> Iterable[Exclusion]:
        return (Exclusion("toll", "a free road has none", "give free: false", when=self.free),)


@pytest.mark.parametrize(
    ("exclusion", "words"),
    [
        (Exclusion("a.b", "it has its own"), "a.b: it has its own: leave b out"),
        (Exclusion("a.b", "only c has one", "give c"), "a.b: only c has one: give c, or leave b out"),
        (Exclusion("a.b", "c gives it", leave="b or c"), "a.b: c gives it: leave b or c out"),
        (Exclusion("a.b", "c is needed", "give c", leave=""), "a.b: c is needed: give c"),
    ],
)
def test_a_refusal_is_field_reason_and_remedy(exclusion: Exclusion, words: str) -> None:
    assert first_refusal([exclusion]) == words


def test_a_name_must_be_known() -> None:
    places = KnownName("a.0", "east", ("east", "west"), "no such place", "there are east, west")
    assert first_refusal([places]) is None
    assert first_refusal([replace(places, written="wset")]) == "a.0: no such place, did you mean 'west'?"
    assert first_refusal([replace(places, written="north")]) == "a.0: no such place, there are east, west"


def test_what_is_declared_after_a_refusal_is_not_asked_for() -> None:
    def declared() -> Iterator[Declared]:
        yield Exclusion("a", "one", when=False)
        yield Refusal("b: two")
        raise AssertionError

    with pytest.raises(InputError, match=r"^b: two$"):
        check_declared(declared())


def test_a_function_that_declares_is_a_check_when_called() -> None:
    @as_check
    def check_lanes(road: RoadSpec, *, most: int) -> Iterator[Declared]:
        yield Exclusion("toll", "nobody pays", when=len(road.links) == 0)
        for position, link in enumerate(road.links):
            if link.lanes > most:
                yield Refusal(f"links.{position}.lanes: {link.lanes}, more than {most}: give fewer")

    road = RoadSpec(links=(LanesSpec(), LanesSpec(lanes=3), LanesSpec(lanes=4)))
    check_lanes(road, most=4)
    with pytest.raises(InputError, match=r"^links\.1\.lanes: 3, more than 2: give fewer$"):
        check_lanes(road, most=2)


def test_only_what_is_met_is_refused_and_the_first_of_it() -> None:
    absent, present = Exclusion("a", "one", when=False), Exclusion("b", "two")
    assert first_refusal([]) is None
    assert first_refusal([absent]) is None
    assert first_refusal([Exclusion((), "none of them is given")]) is None
    with pytest.raises(InputError, match=r"^variants\.0\.b: two: leave b out$"):
        check_exclusions(absent, present, Exclusion("c", "three"), where="variants.0.")


@pytest.mark.parametrize(
    ("road", "field"),
    [
        (RoadSpec(links=(LanesSpec(), LanesSpec(lanes=2))), "links.1.lanes"),
        (RoadSpec(bridge=LanesSpec(colour="red")), "bridge.colour"),
        (RoadSpec(bridge=LanesSpec.model_validate({"from": "here"})), "bridge.from"),
        (RoadSpec(toll=True), "toll"),
    ],
)
def test_of_a_model_only_fields_are_refused_that_are_given(road: RoadSpec, field: str) -> None:
    paths = ("links.1.lanes", "links.0.lanes", "bridge.lanes", "bridge.colour", "bridge.from", "toll", "free")
    within = paths if len(road.links) > 1 else paths[2:]
    assert first_refusal([Exclusion(within, "why")], road) == f"{field}: why: leave {field.rpartition('.')[2]} out"
    assert first_refusal([Exclusion(paths[2:], "why")], RoadSpec(bridge=LanesSpec(colour="none"))) is None
    assert (
        first_refusal([Exclusion(paths[2:], "why", given_in=RoadSpec()), Exclusion("toll", "why")], RoadSpec()) is None
    )


def test_a_strict_model_checks_what_it_declares() -> None:
    assert RoadSpec(toll=True).toll
    assert words_of_refusal(RoadSpec, toll=True, free=True) == (
        "exp.yaml: toll: a free road has none: give free: false, or leave toll out"
    )

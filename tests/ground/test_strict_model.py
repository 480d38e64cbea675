from collections.abc import Mapping
from typing import Annotated, Literal, Self

import pytest
from pydantic import Field, ValidationError, model_validator

from tests.support.refused import refused
from wanbed.ground.errors import InputError
from wanbed.ground.strict_model import MOST_MISTAKES, StrictModel, parse_model, parse_section
from wanbed.ground.units import DurationNs, SizeBytes
from wanbed.testbed.network.topology_spec import TopologySpec


class Lamp(StrictModel):
    colour: str
    warmup: DurationNs = 0


class Room(StrictModel):
    lamps: Annotated[tuple[Lamp, ...], Field(min_length=1)] = ()
    light: Lamp | None = None


def refusal(document: object) -> str:
    return refused(lambda: parse_model(Room, document, "room.yaml"))


def test_what_is_right_becomes_a_model() -> None:
    room = parse_model(Room, {"lamps": [{"colour": "red", "warmup": "2ms"}]}, "room.yaml")
    assert room.lamps == (Lamp.model_construct(colour="red", warmup=2_000_000),)


def test_models_are_frozen() -> None:
    room = parse_model(Room, {}, "room.yaml")
    with pytest.raises(ValidationError, match="frozen"):
        room.lamps = ()  # type: ignore[misc]


def test_a_long_name_of_a_field_is_cut() -> None:
    line = refusal({"light": {"colour": "red", "x" * 70_000: 1}})
    assert line == f"room.yaml: light.{'x' * 60}...: unknown field, known here: colour, warmup"


def test_an_unknown_field_is_refused_with_its_path_and_the_nearest_name() -> None:
    text = refusal({"lamps": [{"colour": "red"}, {"color": "red"}]})
    assert text.startswith("room.yaml: lamps.1.color: unknown field, did you mean 'colour'?")


def test_an_unknown_field_like_no_other_is_refused_with_the_names_there_are() -> None:
    assert refusal({"xyz": 1}) == "room.yaml: xyz: unknown field, known here: lamps, light"


def test_names_inside_an_optional_section_are_known() -> None:
    assert "did you mean 'warmup'?" in refusal({"light": {"colour": "red", "warm_up": "1ms"}})


def test_a_missing_field_is_named() -> None:
    assert refusal({"light": {}}) == "room.yaml: light.colour: this field is required"


class Shelf(StrictModel):
    books: Annotated[tuple[str, ...], Field(min_length=1, max_length=2)]


@pytest.mark.parametrize(
    ("books", "line"),
    [
        (["a", "b", "c"], "a list of 3 entries, at most 2: give fewer"),
        ([], "a list of 0 entries, at least 1: give more"),
    ],
)
def test_a_list_of_a_wrong_length_is_counted(books: list[str], line: str) -> None:
    with pytest.raises(InputError, match=f"^shelf.yaml: books: {line}$"):
        parse_model(Shelf, {"books": books}, "shelf.yaml")


class Chest(StrictModel):
    drawers: tuple[Lamp, Lamp, Lamp]


@pytest.mark.parametrize(
    ("count", "line"),
    [(1, "a list of 1 entry, at least 3: give more"), (4, "a list of 4 entries, at most 3: give fewer")],
)
def test_a_list_of_another_length_than_its_own_is_one_mistake(count: int, line: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_model(Chest, {"drawers": [{"colour": "red"}] * count}, "chest.yaml")
    assert caught.value.mistakes == (f"chest.yaml: drawers: {line}",)


class Door(StrictModel):
    width_cm: Annotated[int, Field(gt=0, le=200)] = 80
    height_m: Annotated[float, Field(ge=1, lt=9)] = 2.0
    open: bool = False
    side: Literal["left", "right"] = "left"
    keys: tuple[str, ...] = ()


@pytest.mark.parametrize(
    ("field", "value", "line"),
    [
        ("width_cm", "wide", "'wide' is not a whole number"),
        ("width_cm", 2.5, "2.5 is not a whole number"),
        ("width_cm", 0, "0 is not above 0: give more"),
        ("width_cm", 201, "201 is above 200: give 200 at most"),
        ("height_m", "tall", "'tall' is not a number"),
        ("height_m", 0.5, "0.5 is below 1: give 1 at least"),
        ("height_m", 9, "9 is not below 9: give less"),
        ("open", "ajar", "'ajar' is not true or false"),
        ("side", "top", "'top' is not known: give 'left' or 'right'"),
        ("side", "rihgt", "'rihgt' is not known: did you mean 'right'?"),
        ("keys", "one", "'one' is not a list"),
        ("keys", [["one"]], "['one'] is not a text"),
    ],
)
def test_a_wrong_value_is_shown_with_what_it_is_not(field: str, value: object, line: str) -> None:
    place = "keys.0" if isinstance(value, list) else field
    assert refused(lambda: parse_model(Door, {field: value}, "door.yaml")) == f"door.yaml: {place}: {line}"


def test_a_wrong_unit_is_refused_with_the_remedy() -> None:
    text = refusal({"light": {"colour": "red", "warmup": 40}})
    assert text == "room.yaml: light.warmup: 40 has no unit: write a duration like 40ms, 50us or 2s"


LargeSize = Annotated[SizeBytes, Field(ge=4096)]


class Tank(StrictModel):
    volume: SizeBytes = Field(ge=4096)


class Tanks(StrictModel):
    row: tuple[LargeSize, ...] = ()
    pair: tuple[Annotated[DurationNs, Field(le=10**9)], LargeSize] | None = None
    by_name: Mapping[str, LargeSize] = Field(default_factory=dict)
    single: LargeSize = 4096
    inner: "Tanks | None" = Field(default=None, alias="in")


def test_a_bound_is_shown_with_its_unit() -> None:
    text = refused(lambda: parse_model(Tank, {"volume": "1KiB"}, "tank.yaml"))
    assert text == "tank.yaml: volume: 1KiB is below 4KiB: give 4KiB at least"


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ({"single": "1KiB"}, "single"),
        ({"row": ["4KiB", "1KiB"]}, "row.1"),
        ({"pair": ["1s", "1KiB"]}, "pair.1"),
        ({"by_name": {"rain": " 1KiB"}}, "by_name.rain"),
        ({"in": {"row": ["1KiB"]}}, "in.row.0"),
    ],
)
def test_a_bound_inside_a_list_or_a_mapping_has_its_unit_too(document: dict[str, object], place: str) -> None:
    text = refused(lambda: parse_model(Tanks, document, "tanks.yaml"))
    assert text == f"tanks.yaml: {place}: 1KiB is below 4KiB: give 4KiB at least"


def test_a_field_that_python_cannot_name_has_its_own_name_in_documents() -> None:
    tanks = Tanks.model_validate({"in": {"row": ["8KiB"]}})
    assert tanks.model_dump(mode="json", exclude_defaults=True) == {"in": {"row": ["8KiB"]}}
    assert Tanks.model_validate(tanks.model_dump(mode="json")) == tanks


def test_each_place_of_a_list_has_its_own_unit() -> None:
    text = refused(lambda: parse_model(Tanks, {"pair": ["2s", "4KiB"]}, "tanks.yaml"))
    assert text == "tanks.yaml: pair.0: 2s is above 1s: give 1s at most"


class Street(StrictModel):
    lamps: int = 0
    trees: int = 0

    @model_validator(mode="after")
    def _has_light(self) -> Self:
        if self.trees > self.lamps:
            raise ValueError("lamps: too dark under so many trees: give more")
        if self.lamps > 9:
            raise ValueError("it is too bright: give fewer lamps")
        return self


class Town(StrictModel):
    main: Street | None = Field(default=None, alias="high")


def test_the_place_of_what_a_whole_section_refuses_is_the_field_that_it_names() -> None:
    assert refused(lambda: parse_model(Street, {"trees": 1}, "a.yaml")).startswith("a.yaml: lamps: too dark")
    assert refused(lambda: parse_model(Town, {"high": {"trees": 1}}, "a.yaml")).startswith(
        "a.yaml: high.lamps: too dark"
    )
    assert refused(lambda: parse_section(Town, {"high": {"trees": 1}}, "x")).startswith("x.high.lamps: too dark")
    assert refused(lambda: parse_model(Street, {"lamps": 10}, "a.yaml")).startswith("a.yaml: the document: it is too")


def test_a_mistake_in_a_section_begins_with_the_path_of_its_field() -> None:
    room = {"light": {"colour": 3}}
    assert refused(lambda: parse_section(Room, room, "house.rooms.0")) == (
        "house.rooms.0.light.colour: 3 is no text: put it in quotes"
    )
    assert refused(lambda: parse_section(Room, 3, "house.rooms.0")) == (
        "house.rooms.0: this is a section: give its fields, like {name: value}"
    )
    assert "house.rooms.0: and 2 more" in refused(lambda: parse_section(Room, {"lamps": [{}] * 7}, "house.rooms.0"))


def mistakes(document: object) -> tuple[str, ...]:
    with pytest.raises(InputError) as caught:
        parse_model(Room, document, "room.yaml")
    return caught.value.mistakes


def test_every_mistake_is_a_line_of_its_own_and_unknown_fields_come_first() -> None:
    assert mistakes({"light": {"colour": 3, "warmup": 40, "bulb": 1}}) == (
        "room.yaml: light.bulb: unknown field, known here: colour, warmup",
        "room.yaml: light.colour: 3 is no text: put it in quotes",
        "room.yaml: light.warmup: 40 has no unit: write a duration like 40ms, 50us or 2s",
    )


def test_mistakes_beyond_the_fifth_are_counted() -> None:
    lines = mistakes({"lamps": [{"colour": 3}] * 12})
    assert len(lines) == MOST_MISTAKES + 1
    assert lines[-1] == "room.yaml: and 7 more, mend these first"


def test_a_misspelt_field_is_not_reported_as_missing_too() -> None:
    (line,) = mistakes({"light": {"color": "red"}})
    assert line == "room.yaml: light.color: unknown field, did you mean 'colour'?"


def test_a_list_is_not_blamed_for_a_mistake_in_its_entry() -> None:
    (line,) = mistakes({"lamps": [1]})
    assert line == "room.yaml: lamps.0: this is a section: give its fields, like {name: value}"


@pytest.mark.parametrize("document", [None, [], "text", 5])
def test_what_is_no_mapping_is_refused_in_one_line(document: object) -> None:
    text = refusal(document)
    assert text.startswith("room.yaml: the document: ")
    assert "\n" not in text


def test_a_negative_latency_is_refused_with_its_path() -> None:
    document = {"datacenters": [{"name": "east", "hosts": 1}], "wan": {"latency": "-1ms"}}
    with pytest.raises(InputError, match=r"^wan\.yaml: wan\.latency: '-1ms' is negative"):
        parse_model(TopologySpec, document, "wan.yaml")

"""Say which values a section of the experiment file takes, and with which words it refuses others."""

from typing import Any

from tests.support.refused import refused
from wanbed.ground.strict_model import StrictModel, parse_model


def taken(section: type[StrictModel], field: str, *values: object, **others: object) -> list[Any]:
    """Return what ``field`` is after each of ``values`` is written. ``others`` are the section's other fields."""
    attribute = next(name for name, info in section.model_fields.items() if field in {name, info.alias})
    return [getattr(parse_model(section, {**others, field: value}, "exp.yaml"), attribute) for value in values]


def words_of_refusal(section: type[StrictModel], **fields: object) -> str:
    """Return the one line with which a section is refused, and fail where it is taken."""
    return refused(lambda: parse_model(section, fields, "exp.yaml"))


def takes_from_to(section: type[StrictModel], field: str, least: int, most: int, **others: object) -> bool:
    """Return whether a whole number is taken at both ends of its range, and refused one beyond, with these ends."""
    words = f"is not a whole number from {least} to {most}"
    ends = taken(section, field, least, most, **others) == [least, most]
    beyond = (words_of_refusal(section, **{**others, field: value}) for value in (least - 1, most + 1))
    return ends and all(words in line for line in beyond)

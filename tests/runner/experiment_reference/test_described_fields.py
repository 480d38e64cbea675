"""Every field of the experiment file is described, with examples that the reader takes."""

from collections.abc import Iterator
from typing import Annotated, Any, get_args

import pytest
from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from runner.experiment.experiment_spec import ExperimentSpec


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from models_in(argument)


def models_below(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    yield model
    for field in model.model_fields.values():
        for below in models_in(field.annotation):
            yield from models_below(below)


FIELDS = {
    f"{model.__name__}.{name}": field
    for model in models_below(ExperimentSpec)
    for name, field in model.model_fields.items()
}
EXAMPLES = [(name, example) for name, field in FIELDS.items() for example in field.examples or ()]


def test_every_section_is_looked_at() -> None:
    assert {name.partition(".")[0] for name in FIELDS} >= {"ExperimentSpec", "LinkSpec", "TokensSpec", "TransportSpec"}


@pytest.mark.parametrize("field", FIELDS.values(), ids=FIELDS)
def test_a_field_has_a_description_in_sentences_and_an_example(field: FieldInfo) -> None:
    description = field.description or ""
    assert description[:1].isupper() or description.startswith("`")
    assert description.endswith(".")
    assert field.examples


@pytest.mark.parametrize(("name", "example"), EXAMPLES, ids=[f"{name}={example}" for name, example in EXAMPLES])
def test_an_example_is_read(name: str, example: object) -> None:
    field = FIELDS[name]
    TypeAdapter(Annotated[field.annotation, name, *field.metadata]).validate_python(example)

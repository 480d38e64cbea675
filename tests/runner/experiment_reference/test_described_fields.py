"""Every field of the experiment file is described, with examples that the reader takes."""

import re
from collections.abc import Iterator
from typing import Annotated, Any, get_args

from pydantic import BaseModel, TypeAdapter, ValidationError

from wanbed.runner.experiment.experiment_spec import ExperimentSpec


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


def test_every_section_is_looked_at() -> None:
    assert {name.partition(".")[0] for name in FIELDS} >= {"ExperimentSpec", "LinkSpec", "TokensSpec", "TransportSpec"}


def test_every_field_has_a_description_in_sentences() -> None:
    text = {name: field.description or "" for name, field in FIELDS.items()}
    sentences = re.compile(r"[`A-Z].*\.", re.DOTALL)
    assert {name: said for name, said in text.items() if not sentences.fullmatch(said)} == {}


def test_every_field_has_an_example() -> None:
    assert [name for name, field in FIELDS.items() if not field.examples] == []


def test_every_example_is_read() -> None:
    refused = {}
    for name, field in FIELDS.items():
        reader: TypeAdapter[Any] = TypeAdapter(Annotated[field.annotation, name, *field.metadata])
        for example in field.examples or ():
            try:
                reader.validate_python(example)
            except ValidationError as refusal:
                refused[name, str(example)] = str(refusal)
    assert refused == {}

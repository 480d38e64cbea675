"""Make the message classes of Chakra execution traces from ``et_def.proto``, as MLCommons publishes it.

The classes are made when this module is imported, from the definition beside it. So no generated code has to fit the
installed protobuf, and the published definition is the only source. Its licence is in ``LICENSE`` beside it.
"""

import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_TOKENS = re.compile(r'"[^"]*"|\w+|[{}=;]')
_COMMENT = re.compile(r"//[^\n]*")
_FIELD_TYPES = descriptor_pb2.FieldDescriptorProto.Type
_SCALARS = frozenset(_FIELD_TYPES.keys())
_REPEATED = descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED
_SINGLE = descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL


def definition_text() -> str:
    """Return the published definition."""
    return files("wanbed.results.chakra").joinpath("et_def.proto").read_text(encoding="utf-8")


def file_descriptor(text: str) -> Any:
    """Return the descriptor of a definition in proto3 that has messages, enumerations and ``oneof`` only."""
    tokens = iter(_TOKENS.findall(_COMMENT.sub("", text)))
    described = descriptor_pb2.FileDescriptorProto(name="et_def.proto")
    for token in tokens:
        match token:
            case "syntax":
                described.syntax = _value(tokens).strip('"')
            case "package":
                described.package = next(tokens)
            case "enum":
                enumeration = described.enum_type.add(name=next(tokens))
                for name in _block(tokens):
                    enumeration.value.add(name=name, number=int(_value(tokens)))
            case "message":
                _read_message(tokens, described)
    enumerations = {enumeration.name for enumeration in described.enum_type}
    for message in described.message_type:
        for field in message.field:
            if field.type_name in enumerations:
                field.type = _FIELD_TYPES.Value("TYPE_ENUM")
            if field.type_name:
                field.type_name = f".{described.package}.{field.type_name}"
    return described


def _read_message(tokens: Iterator[str], described: Any) -> None:
    message = described.message_type.add(name=next(tokens))
    for word in _block(tokens):
        if word == "oneof":
            message.oneof_decl.add(name=next(tokens))
            for kind in _block(tokens):
                _read_field(tokens, message, kind).oneof_index = len(message.oneof_decl) - 1
        elif word == "repeated":
            _read_field(tokens, message, next(tokens)).label = _REPEATED
        else:
            _read_field(tokens, message, word)


def _read_field(tokens: Iterator[str], message: Any, kind: str) -> Any:
    field = message.field.add(name=next(tokens), number=int(_value(tokens)), label=_SINGLE)
    scalar = f"TYPE_{kind.upper()}"
    if scalar in _SCALARS:
        field.type = _FIELD_TYPES.Value(scalar)
    else:
        field.type, field.type_name = _FIELD_TYPES.Value("TYPE_MESSAGE"), kind
    return field


def _block(tokens: Iterator[str]) -> Iterator[str]:
    """Yield the first token of each statement of a block in braces, until its end."""
    assert next(tokens) == "{"
    for word in tokens:
        if word == "}":
            return
        if word != ";":
            yield word


def _value(tokens: Iterator[str]) -> str:
    assert next(tokens) == "="
    return next(tokens)


@cache
def message_class(name: str) -> Any:
    """Return the class of a message of the definition, like ``Node``."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"ChakraProtoMsg.{name}"))


@cache
def _pool() -> Any:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file_descriptor(definition_text()))
    return pool

"""Decode Chakra files by hand, by the published field numbers and protobuf's wire format, without any library."""

from collections.abc import Iterator
from typing import Any

NODE = {1: "id", 2: "name", 3: "type", 4: "ctrl_deps", 5: "data_deps", 6: "start", 7: "duration", 10: "attr"}
VALUES = {7: "int32", 9: "int64", 13: "uint64", 27: "bool", 29: "string"}


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return value, at


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        number, wire = key >> 3, key & 7
        value, at = varint(data, at)
        if wire == 2:
            yield number, data[at : at + value]
            at += value
        else:
            assert wire == 0
            yield number, value


def signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def attribute(data: bytes) -> tuple[str, str, Any]:
    """The name, the type and the value of an attribute."""
    (_, name), *rest = fields(data)
    assert isinstance(name, bytes)
    ((number, value),) = rest
    kind = VALUES[number]
    return name.decode(), kind, value.decode() if isinstance(value, bytes) else signed(value)


def node(data: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {"id": 0, "start": 0, "duration": 0, "ctrl_deps": [], "data_deps": [], "attr": {}}
    for number, value in fields(data):
        name = NODE[number]
        if name == "attr":
            assert isinstance(value, bytes)
            key, kind, content = attribute(value)
            found["attr"][key] = (kind, content)
        elif name.endswith("deps"):
            assert isinstance(value, bytes)
            at = 0
            while at < len(value):
                each, at = varint(value, at)
                found[name].append(each)
        else:
            found[name] = value.decode() if isinstance(value, bytes) else value
    return found


def rank_file(content: bytes) -> tuple[str, list[dict[str, Any]]]:
    """The version and the nodes of a file."""
    messages, at = [], 0
    while at < len(content):
        length, at = varint(content, at)
        messages.append(content[at : at + length])
        at += length
    ((number, version),) = fields(messages[0])
    assert number == 1
    assert isinstance(version, bytes)
    return version.decode(), [node(message) for message in messages[1:]]

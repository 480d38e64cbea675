"""The message classes are those of the published definition."""

from wanbed.results.chakra.definition import definition_text, file_descriptor, message_class
from wanbed.results.chakra.node import CollectiveType, NodeType


def test_every_message_and_enumeration_of_the_definition_is_read() -> None:
    described = file_descriptor(definition_text())
    text = definition_text()
    assert len(described.message_type) == text.count("\nmessage ") == 20
    assert [enumeration.name for enumeration in described.enum_type] == ["NodeType", "CollectiveCommType"]
    assert sum(len(message.field) for message in described.message_type) == text.count(" = ") - 18 - 1


def test_field_numbers_are_the_published_ones() -> None:
    numbers = {field.name: field.number for field in message_class("Node").DESCRIPTOR.fields}
    assert numbers["ctrl_deps"] == 4
    assert numbers["attr"] == 10
    values = message_class("AttributeProto").DESCRIPTOR.oneofs_by_name["value"].fields
    assert {field.name: field.number for field in values}["string_val"] == 29
    assert len(values) == 30


def test_node_types_and_collectives_have_the_published_numbers() -> None:
    described = file_descriptor(definition_text())
    for published, own in zip(described.enum_type, (NodeType, CollectiveType), strict=True):
        assert {value.name: value.number for value in published.value} == {each.name: each.value for each in own}

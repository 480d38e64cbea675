"""Files of ranks are written as published, and read back; what is no such file is refused."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.results.chakra.wire_format import rank_file
from wanbed.results.chakra.node import DURATION_NS, KIND, MICROBATCH, ChakraNode, CollectiveType, NodeType
from wanbed.results.chakra.rank_file import (
    ChakraFileError,
    definition_text,
    file_descriptor,
    message_class,
    rank_bytes,
    read_rank,
)


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


IDS = st.integers(0, 2**64 - 1)

INT64, INT32, UINT64 = st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1), IDS

TYPES = {
    "is_cpu_op": ("bool", st.booleans()),
    "num_ops": ("int64", INT64),
    "tensor_size": ("uint64", UINT64.filter(lambda value: value < 2**63)),
    "comm_type": ("int64", st.integers(0, 9)),
    "comm_size": ("int64", INT64),
    "comm_src": ("int32", INT32),
    "comm_dst": ("int32", INT32),
    "comm_tag": ("int32", INT32),
    "pg_name": ("string", st.text(max_size=9)),
    DURATION_NS: ("uint64", UINT64.filter(lambda value: value < 2**63)),
    KIND: ("string", st.text(max_size=9)),
    MICROBATCH: ("int32", INT32),
}

NODES = st.builds(
    ChakraNode,
    id=IDS,
    name=st.text(min_size=1, max_size=20),
    type=st.sampled_from([each for each in NodeType if each]),
    control_dependencies=st.lists(IDS, max_size=3).map(tuple),
    data_dependencies=st.lists(IDS, max_size=3).map(tuple),
    start_us=UINT64,
    duration_us=UINT64,
    attributes=st.fixed_dictionaries({}, optional={name: values for name, (_, values) in TYPES.items()}),
)


@settings(max_examples=40)
@given(st.lists(NODES, max_size=4))
def test_an_independent_decoder_finds_what_was_written(nodes: list[ChakraNode]) -> None:
    version, found = rank_file(rank_bytes(nodes))
    assert version == "1.0.0"
    for node, read in zip(nodes, found, strict=True):
        assert (read["id"], read["name"], read["type"]) == (node.id, node.name, node.type)
        assert (read["start"], read["duration"]) == (node.start_us, node.duration_us)
        assert read["ctrl_deps"] == list(node.control_dependencies)
        assert read["data_deps"] == list(node.data_dependencies)
        assert read["attr"] == {name: (TYPES[name][0], value) for name, value in node.attributes.items()}


@settings(max_examples=40)
@given(st.lists(NODES, max_size=4))
def test_what_was_written_is_read_back(nodes: list[ChakraNode]) -> None:
    assert read_rank(rank_bytes(nodes)) == ("1.0.0", nodes)


@settings(max_examples=40)
@given(st.lists(NODES, min_size=1, max_size=3), st.data())
def test_a_file_that_is_cut_off_is_refused_unless_it_ends_after_a_message(
    nodes: list[ChakraNode], data: st.DataObject
) -> None:
    whole = rank_bytes(nodes)
    ends = [len(rank_bytes(nodes[:count])) for count in range(len(nodes) + 1)]
    cut = data.draw(st.integers(0, len(whole) - 1))
    if cut in ends:
        assert read_rank(whole[:cut])[1] == nodes[: ends.index(cut)]
    else:
        with pytest.raises(ChakraFileError):
            read_rank(whole[:cut])


@given(st.binary(max_size=60))
def test_any_bytes_are_a_trace_or_refused_in_one_line(content: bytes) -> None:
    assert "\n" not in _outcome(content)


def _outcome(content: bytes) -> str:
    try:
        version, nodes = read_rank(content)
    except ChakraFileError as refusal:
        return str(refusal)
    return ascii((version, nodes))

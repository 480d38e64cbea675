import operator
import random
import socket
import struct
from ipaddress import IPv4Address, IPv4Network

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pyroute2.netlink.rtnl.tcmsg import tcmsg

from wanbed.testbed.kernel.node_pair_classifier import (
    HTB_MAJOR,
    INTRA_CLASS,
    filter_request,
    node_pair_program,
    read_back,
    same_datacenter_program,
    source_host_program,
)
from wanbed.testbed.network.gateway_plan import FIRST_PAIR_CLASS, pair_class, source_class

NETWORK_HEADER = 0xFFF00000
LOADS = {0x20: 4, 0x28: 2, 0x30: 1}
JUMPS = {0x15: operator.eq, 0x35: operator.ge}
CONSTANT_ARITHMETIC = {
    0x04: operator.add,
    0x14: operator.sub,
    0x24: operator.mul,
    0x44: operator.or_,
    0x54: operator.and_,
}
ADD_INDEX, TO_INDEX = 0x0C, 0x07
RETURN_CONSTANT, RETURN_ACCUMULATOR = 0x06, 0x16
NO_MATCH = 0
ETHERNET_HEADER = bytes(12) + b"\x08\x00"

EAST, WEST = "10.4.0.0", "10.4.1.0"
HOST_COUNTS = st.integers(1, 250)
ADDRESSES = st.integers(0, 2**32 - 1).map(IPv4Address)
NEAR_ADDRESSES = st.builds(
    lambda subnet, octet: IPv4Address(subnet) + octet, st.sampled_from([EAST, WEST]), st.integers(0, 255)
)


def host(subnet: str, number: int) -> IPv4Address:
    return IPv4Address(subnet) + number + 2


def ipv4_packet(source: IPv4Address, destination: IPv4Address) -> bytes:
    """A frame with a real IPv4 header around 64 random bytes, as a qdisc sees it."""
    header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 84, 0x1234, 0, 64, 17, 0, source.packed, destination.packed)
    return ETHERNET_HEADER + header + random.Random(0).randbytes(64)


def run(program: bytes, frame: bytes) -> int:
    """Execute classic BPF as the kernel's documentation defines it; only what the programs may use is known."""
    instructions = list(struct.iter_unpack("=HBBI", program))
    accumulator = index = counter = 0
    while True:
        code, jump_true, jump_false, operand = instructions[counter]
        counter += 1
        if code in LOADS:
            assert operand >= NETWORK_HEADER, "an absolute offset would count from wherever the driver left it"
            offset = len(ETHERNET_HEADER) + operand - NETWORK_HEADER
            accumulator = int.from_bytes(frame[offset : offset + LOADS[code]], "big")
        elif code in JUMPS:
            counter += jump_true if JUMPS[code](accumulator, operand) else jump_false
        elif code in CONSTANT_ARITHMETIC:
            accumulator = CONSTANT_ARITHMETIC[code](accumulator, operand) % 2**32
        elif code == ADD_INDEX:
            accumulator = (accumulator + index) % 2**32
        elif code == TO_INDEX:
            index = accumulator
        elif code == RETURN_CONSTANT:
            return int(operand)
        else:
            assert code == RETURN_ACCUMULATOR, f"instruction {code:#x}"
            return accumulator


@given(HOST_COUNTS, HOST_COUNTS, st.data())
def test_a_packet_between_two_hosts_gets_the_class_of_their_pair(
    sources: int, destinations: int, data: st.DataObject
) -> None:
    program = node_pair_program(EAST, sources, WEST, destinations)
    source = data.draw(st.integers(0, sources - 1), "source")
    destination = data.draw(st.integers(0, destinations - 1), "destination")
    frame = ipv4_packet(host(EAST, source), host(WEST, destination))
    assert run(program, frame) == HTB_MAJOR << 16 | pair_class(source, destination, destinations)


@pytest.mark.parametrize(
    ("sources", "destinations"), [(1, 1), (7, 3), (3, 7), (20, 20), (2, 250), (250, 2), (250, 250)]
)
def test_every_pair_gets_a_class_of_its_own(sources: int, destinations: int) -> None:
    program = node_pair_program(EAST, sources, WEST, destinations)
    classes = [
        run(program, ipv4_packet(host(EAST, source), host(WEST, destination)))
        for source in range(sources)
        for destination in range(destinations)
    ]
    first = HTB_MAJOR << 16 | FIRST_PAIR_CLASS
    assert classes == list(range(first, first + sources * destinations))


@given(HOST_COUNTS, HOST_COUNTS, ADDRESSES | NEAR_ADDRESSES, ADDRESSES | NEAR_ADDRESSES)
def test_a_packet_from_or_to_anything_else_matches_no_pair(
    sources: int, destinations: int, source: IPv4Address, destination: IPv4Address
) -> None:
    is_source = host(EAST, 0) <= source < host(EAST, sources)
    is_destination = host(WEST, 0) <= destination < host(WEST, destinations)
    assume(not (is_source and is_destination))
    program = node_pair_program(EAST, sources, WEST, destinations)
    assert run(program, ipv4_packet(source, destination)) == NO_MATCH


@pytest.mark.parametrize("octet", [0, 1, 5, 255])
def test_the_peers_of_the_hosts_addresses_match_no_pair(octet: int) -> None:
    program = node_pair_program(EAST, 3, WEST, 3)
    assert run(program, ipv4_packet(IPv4Address(EAST) + octet, host(WEST, 0))) == NO_MATCH
    assert run(program, ipv4_packet(host(EAST, 0), IPv4Address(WEST) + octet)) == NO_MATCH


def test_the_way_back_matches_no_pair() -> None:
    program = node_pair_program(EAST, 3, WEST, 3)
    assert run(program, ipv4_packet(host(WEST, 0), host(EAST, 0))) == NO_MATCH


def test_the_work_for_a_packet_does_not_grow_with_the_number_of_pairs() -> None:
    assert len(node_pair_program(EAST, 250, WEST, 250)) == len(node_pair_program(EAST, 1, WEST, 1))


@given(ADDRESSES | NEAR_ADDRESSES)
def test_only_packets_of_the_same_datacenter_get_the_intra_class(source: IPv4Address) -> None:
    program = same_datacenter_program(EAST)
    inside = source in IPv4Network(f"{EAST}/24")
    expected = HTB_MAJOR << 16 | INTRA_CLASS if inside else NO_MATCH
    assert run(program, ipv4_packet(source, host(EAST, 1))) == expected


@given(st.integers(0, 249), st.integers(0, 249))
def test_each_host_that_sends_has_a_class_of_its_own(datacenter: int, number: int) -> None:
    source = host(f"10.4.{datacenter}.0", number)
    expected = HTB_MAJOR << 16 | source_class(datacenter, number)
    assert run(source_host_program(EAST), ipv4_packet(source, host(EAST, 1))) == expected


@given(st.integers(0, 249))
def test_a_gateway_that_sends_gets_no_hosts_class(datacenter: int) -> None:
    found = run(source_host_program(EAST), ipv4_packet(IPv4Address(f"10.4.{datacenter}.1"), host(EAST, 1)))
    assert found & 0xFFFF not in {source_class(each, number) for each in range(250) for number in range(250)}


def test_packets_of_another_testbed_match_no_source() -> None:
    assert run(source_host_program(EAST), ipv4_packet(IPv4Address("10.5.0.2"), host(EAST, 1))) == NO_MATCH


@pytest.mark.parametrize(
    "program", [node_pair_program(EAST, 250, WEST, 250), same_datacenter_program(WEST), source_host_program(WEST)]
)
def test_programs_jump_forward_and_inside_themselves_and_end_in_a_return(program: bytes) -> None:
    instructions = list(struct.iter_unpack("=HBBI", program))
    for at, (code, jump_true, jump_false, _) in enumerate(instructions):
        if code in JUMPS:
            assert at + 1 + max(jump_true, jump_false) < len(instructions)
        else:
            assert (jump_true, jump_false) == (0, 0)
    assert instructions[-1][0] == RETURN_CONSTANT


@given(HOST_COUNTS, HOST_COUNTS)
def test_a_filter_reads_back_from_its_message_as_the_program_it_was_made_of(sources: int, destinations: int) -> None:
    program = node_pair_program(EAST, sources, WEST, destinations)
    request = filter_request(program)
    sent = tcmsg()
    sent["info"] = request["info"]
    sent["attrs"] = [("TCA_KIND", "bpf"), ("TCA_OPTIONS", request["options"])]
    sent.encode()
    received = tcmsg(sent.data)
    received.decode()
    assert read_back(received) == program
    options = received.get_attr("TCA_OPTIONS")
    assert options.get_attr("TCA_BPF_OPS_LEN") * 8 == len(program)
    assert received["info"] & 0xFFFF == socket.htons(0x0800)


def test_a_message_without_a_program_reads_back_as_none() -> None:
    sent = tcmsg()
    sent["attrs"] = [("TCA_KIND", "bpf")]
    sent.encode()
    received = tcmsg(sent.data)
    received.decode()
    assert read_back(received) == b""

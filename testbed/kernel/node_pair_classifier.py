"""Classify a packet by its node pair, or by its source host, in constant time.

The kernel would search a chain of u32 filters for every packet, and the chain grows with the number of pairs. Instead,
one classic BPF program computes the class from the addresses: the last octet of an address numbers the host, so the
class of a pair takes one multiplication and one addition for any number of hosts. Packets that match no pair, for
example a router's ICMP errors, get the qdisc's default class.
"""

import socket
import struct
from dataclasses import dataclass
from typing import Any

from pyroute2.netlink import nla
from pyroute2.netlink.rtnl import TC_H_ROOT, tcmsg

from wanbed.testbed.network.addressing import FIRST_HOST_OCTET
from wanbed.testbed.network.gateway_plan import FIRST_PAIR_CLASS

_NETWORK_HEADER = 0xFFF00000
"""SKF_NET_OFF: offsets are relative to the IP header."""
_SOURCE, _DESTINATION = 12, 16

_LD_WORD_ABS, _LD_HALF_ABS, _LD_BYTE_ABS = 0x20, 0x28, 0x30
_JEQ, _JGE = 0x15, 0x35
_AND, _SUB, _ADD, _MUL, _ADD_X, _OR = 0x54, 0x14, 0x04, 0x24, 0x0C, 0x44
_TAX, _RET_A, _RET_K = 0x07, 0x16, 0x06
_NO_MATCH = 0

HTB_MAJOR = 1
INTRA_CLASS = 0x10

_ETH_P_IP = 0x0800


@dataclass(frozen=True)
class Instruction:
    """One classic BPF instruction."""

    code: int
    operand: int = 0
    jump_true: int = 0
    jump_false: int = 0

    def packed(self) -> bytes:
        """Encode the instruction as struct sock_filter."""
        return struct.pack("=HBBI", self.code, self.jump_true, self.jump_false, self.operand)


def node_pair_program(source_subnet: str, sources: int, destination_subnet: str, destinations: int) -> bytes:
    """Build a program that returns the class of a packet between hosts of two /24 subnets, no match for any other."""
    network = 0xFFFFFF00
    checks = [
        *_require(_SOURCE, network, _number(source_subnet)),
        *_require(_DESTINATION, network, _number(destination_subnet)),
        *_require_host(_SOURCE + 3, sources),
        *_require_host(_DESTINATION + 3, destinations),
    ]
    compute = [
        Instruction(_LD_BYTE_ABS, _NETWORK_HEADER + _DESTINATION + 3),
        Instruction(_TAX),
        Instruction(_LD_BYTE_ABS, _NETWORK_HEADER + _SOURCE + 3),
        Instruction(_SUB, FIRST_HOST_OCTET),
        Instruction(_MUL, destinations),
        Instruction(_ADD_X),
        Instruction(_ADD, (FIRST_PAIR_CLASS - FIRST_HOST_OCTET) % 2**32),
        Instruction(_OR, HTB_MAJOR << 16),
        Instruction(_RET_A),
    ]
    return _linked(checks, compute)


def source_host_program(datacenter_subnet: str) -> bytes:
    """Build a program that returns the ``source_class`` of a packet from the testbed's /16, no match for any other.

    Packets from a gateway get a number that belongs to no host, and so the qdisc's default class.
    """
    checks = _require(_SOURCE, 0xFFFF0000, _number(datacenter_subnet) & 0xFFFF0000)
    compute = [
        Instruction(_LD_HALF_ABS, _NETWORK_HEADER + _SOURCE + 2),
        Instruction(_ADD, (FIRST_PAIR_CLASS - FIRST_HOST_OCTET) % 2**32),
        Instruction(_OR, HTB_MAJOR << 16),
        Instruction(_RET_A),
    ]
    return _linked(checks, compute)


def same_datacenter_program(datacenter_subnet: str) -> bytes:
    """Build a program that returns ``INTRA_CLASS`` for packets from the /24 subnet, no match for any other."""
    checks = _require(_SOURCE, 0xFFFFFF00, _number(datacenter_subnet))
    return _linked(checks, [Instruction(_RET_K, HTB_MAJOR << 16 | INTRA_CLASS)])


def _number(address: str) -> int:
    return int.from_bytes(socket.inet_aton(address), "big")


_FAIL = 255


def _require(offset: int, mask: int, value: int) -> list[Instruction]:
    return [
        Instruction(_LD_WORD_ABS, _NETWORK_HEADER + offset),
        Instruction(_AND, mask),
        Instruction(_JEQ, value, 0, _FAIL),
    ]


def _require_host(offset: int, hosts: int) -> list[Instruction]:
    return [
        Instruction(_LD_BYTE_ABS, _NETWORK_HEADER + offset),
        Instruction(_JGE, FIRST_HOST_OCTET, 0, _FAIL),
        Instruction(_JGE, FIRST_HOST_OCTET + hosts, _FAIL, 0),
    ]


def _linked(checks: list[Instruction], compute: list[Instruction]) -> bytes:
    """Join both parts and a final "no match" instruction, the target of every failed check."""
    end = len(checks) + len(compute)
    linked = [
        Instruction(
            each.code,
            each.operand,
            end - at - 1 if each.jump_true == _FAIL else each.jump_true,
            end - at - 1 if each.jump_false == _FAIL else each.jump_false,
        )
        for at, each in enumerate(checks)
    ]
    program = [*linked, *compute, Instruction(_RET_K, _NO_MATCH)]
    return b"".join(instruction.packed() for instruction in program)


class _Options(nla):  # type: ignore[misc]
    nla_map = (
        ("TCA_BPF_UNSPEC", "none"),
        ("TCA_BPF_ACT", "hex"),
        ("TCA_BPF_POLICE", "hex"),
        ("TCA_BPF_CLASSID", "uint32"),
        ("TCA_BPF_OPS_LEN", "uint16"),
        ("TCA_BPF_OPS", "cdata"),
        ("TCA_BPF_FD", "uint32"),
        ("TCA_BPF_NAME", "asciiz"),
        ("TCA_BPF_FLAGS", "uint32"),
    )


class _Plugin:
    """The object that pyroute2 looks up for the kind ``bpf``; pyroute2's own supports only loaded eBPF programs."""

    parent = TC_H_ROOT
    options = _Options


def filter_request(program: bytes) -> dict[str, Any]:
    """Return the arguments of ``IPRoute.tc("add-filter", "bpf")`` for an IPv4 program, without index and parent."""
    priority = 1
    return {
        "info": socket.htons(_ETH_P_IP) | priority << 16,
        "options": {"attrs": [("TCA_BPF_OPS_LEN", len(program) // 8), ("TCA_BPF_OPS", program)]},
    }


def read_back(filter_message: Any) -> bytes:
    """Return the program of a dumped filter, b"" if the message has none."""
    found = filter_message.get_attr("TCA_OPTIONS")
    return bytes(found.get_attr("TCA_BPF_OPS") or b"") if found else b""


tcmsg.plugins["bpf"] = _Plugin

"""How long ranks wait for silent peers, and that all of their sockets know."""

import socket
from dataclasses import replace

import pytest

from tests.runner.emulation.rank_plans import ONE, planned, point
from wanbed.runner.emulation.peer_timeout import peer_timeout_s
from wanbed.testbed.network.links.link_course import course_of
from wanbed.testbed.network.topology import Topology
from wanbed.workloads.transport.socket_options import PEER_TIMEOUT_S, make_socket

S = 10**9
LOOPBACK = "127.0.0.1"


def with_outage(length_ns: int) -> Topology:
    """A network whose link is down for so long."""
    topology = point(variants=[ONE]).topology
    (link,) = topology.wan
    up = link.conditions
    course = course_of([(0, up), (S, replace(up, up=False)), (S + length_ns, up)])
    return replace(topology, wan=(replace(link, courses=(course, course)),))


def test_where_no_link_is_ever_down_a_failure_is_told_as_soon_as_ever() -> None:
    assert peer_timeout_s(point(variants=[ONE]).topology) == PEER_TIMEOUT_S == 8


@pytest.mark.parametrize(("outage_ns", "expected_s"), [(15 * S, 38), (S // 2, 9), (S // 1000, 9)])
def test_a_configured_outage_is_outlasted_with_the_wait_of_tcp_after_it(outage_ns: int, expected_s: int) -> None:
    assert peer_timeout_s(with_outage(outage_ns)) == expected_s


def test_a_dilated_outage_is_outlasted_as_it_is_emulated() -> None:
    assert peer_timeout_s(with_outage(10 * S).dilated(3)) == 68


def test_ranks_are_told_and_have_longer_to_meet_after_a_restart() -> None:
    of = point(variants=[ONE])
    plain, patient = planned(of)[0], planned(of, peer_timeout_s=38)[0]
    assert (plain.rendezvous.peer_timeout_s, patient.rendezvous.peer_timeout_s) == (8, 38)
    assert patient.rendezvous.timeout_ns - plain.rendezvous.timeout_ns == 30 * S


@pytest.mark.parametrize("timeout_s", [8, 38, 3600])
def test_the_kernel_takes_it(timeout_s: int) -> None:
    with make_socket(LOOPBACK, 0, None, peer_timeout_s=timeout_s) as made:
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == timeout_s * 1000
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT) <= 127

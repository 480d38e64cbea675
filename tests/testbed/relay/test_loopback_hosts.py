import os
import socket
from contextlib import closing

import pytest

from wanbed.ground.errors import MissingError
from wanbed.testbed.network.addressing import loopback_address
from wanbed.testbed.relay import loopback_hosts as module
from wanbed.testbed.relay.loopback_hosts import LoopbackSubnet


def test_testbeds_at_the_same_time_have_parts_of_their_own() -> None:
    one, other = LoopbackSubnet(), LoopbackSubnet()
    assert one.number != other.number
    one.close()
    third = LoopbackSubnet()
    assert third.number != other.number
    for each in (other, third):
        each.close()


def test_a_part_where_another_user_listens_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(LoopbackSubnet()) as free:
        number = free.number
    with socket.create_server((loopback_address(number, 0, 0, reached=True), 0)):
        with closing(LoopbackSubnet()) as beside_an_own_program:
            assert beside_an_own_program.number == number
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        with closing(LoopbackSubnet()) as beside_anothers:
            assert beside_anothers.number != number


def test_a_full_loopback_is_an_error_that_names_who_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(LoopbackSubnet()) as free:
        monkeypatch.setattr(module, "LOOPBACK_SUBNETS", free.number)
        with pytest.raises(MissingError, match=r"none of the \d+ parts .* free: .*:20000 is taken by .*: end that"):
            LoopbackSubnet()

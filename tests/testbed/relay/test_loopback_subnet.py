import pytest

from ground.strict_model import InputError
from testbed.relay import loopback_subnet as module
from testbed.relay.loopback_subnet import LoopbackSubnet


def test_testbeds_at_the_same_time_have_parts_of_their_own() -> None:
    one, other = LoopbackSubnet(), LoopbackSubnet()
    assert one.number != other.number
    one.close()
    third = LoopbackSubnet()
    assert third.number != other.number
    for each in (other, third):
        each.close()


def test_a_full_loopback_is_an_error_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOPBACK_SUBNETS", 0)
    with pytest.raises(InputError, match="use the loopback already, end some of them"):
        LoopbackSubnet()

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.testbed.network.tcp_settings import TcpSettings


def test_the_settings_are_those_of_a_stock_linux_host_unless_configured() -> None:
    assert TcpSettings().sysctls() == {
        "net.ipv4.tcp_rmem": "4096 131072 6291456",
        "net.ipv4.tcp_wmem": "4096 16384 12582912",
        "net.ipv4.tcp_congestion_control": "cubic",
        "net.ipv4.tcp_slow_start_after_idle": "1",
        "net.ipv4.tcp_no_metrics_save": "1",
    }


@given(st.integers(4096, 2**30))
def test_send_buffer_maximum_is_twice_the_receive_buffer_maximum_which_holds_the_window(window_bytes: int) -> None:
    settings = TcpSettings(window_bytes)
    sysctls = settings.sysctls()
    receive, send = ([int(size) for size in sysctls[f"net.ipv4.tcp_{kind}mem"].split()] for kind in "rw")
    assert receive == sorted(receive)
    assert send == sorted(send)
    assert (receive[-1], send[-1]) == (settings.buffer_bytes, 2 * settings.buffer_bytes)
    assert 0 <= 0.7 * settings.buffer_bytes - window_bytes < 4096


@pytest.mark.parametrize(("slow_start", "text"), [(True, "1"), (False, "0")])
def test_congestion_control_and_slow_start_are_reported_as_given(slow_start: bool, text: str) -> None:
    sysctls = TcpSettings(congestion="bbr", slow_start_after_idle=slow_start).sysctls()
    assert sysctls["net.ipv4.tcp_congestion_control"] == "bbr"
    assert sysctls["net.ipv4.tcp_slow_start_after_idle"] == text


def test_every_setting_is_one_that_the_network_namespace_has_of_its_own() -> None:
    assert all(name.startswith("net.ipv4.") for name in TcpSettings().sysctls())


def test_self_paced_congestion_control_does_not_slow_start_after_idle() -> None:
    assert TcpSettings().restarts_after_idle
    assert not TcpSettings(slow_start_after_idle=False).restarts_after_idle
    assert not TcpSettings(congestion="bbr").restarts_after_idle

import math
import subprocess
from pathlib import Path
from typing import Any

import pytest

from wanbed.testbed.hosts.ping import MeasurementError, parse_ping, ping

PING = """\
PING 10.9.0.2 (10.9.0.2) 56(84) bytes of data.
64 bytes from 10.9.0.2: icmp_seq=1 ttl=64 time=0.063 ms
64 bytes from 10.9.0.2: icmp_seq=2 ttl=64 time=0.056 ms
64 bytes from 10.9.0.2: icmp_seq=3 ttl=64 time=0.051 ms
64 bytes from 10.9.0.2: icmp_seq=6 ttl=64 time=0.071 ms
64 bytes from 10.9.0.2: icmp_seq=7 ttl=64 time=0.050 ms
64 bytes from 10.9.0.2: icmp_seq=8 ttl=64 time=0.049 ms

--- 10.9.0.2 ping statistics ---
8 packets transmitted, 6 received, 25% packet loss, time 389ms
rtt min/avg/max/mdev = 0.049/0.056/0.071/0.008 ms
"""

PING_UNANSWERED = """\
PING 10.9.0.2 (10.9.0.2) 56(84) bytes of data.

--- 10.9.0.2 ping statistics ---
3 packets transmitted, 0 received, 100% packet loss, time 20ms

"""

PING_UNKNOWN = "ping: nowhere.invalid: Temporary failure in name resolution\n"


class Programs:
    """Hosts on which every program prints what the test gives."""

    def __init__(self, script: str) -> None:
        self.started: list[tuple[str, list[str]]] = []
        self.processes: list[subprocess.Popen[Any]] = []
        self._script = script

    def spawn(self, host: str, argv: list[str], **popen: Any) -> "subprocess.Popen[Any]":
        self.started.append((host, argv))
        process = subprocess.Popen(["sh", "-c", self._script], **popen)
        self.processes.append(process)
        return process


def printing(folder: Path, text: str, status: int = 0) -> str:
    path = folder / "output"
    path.write_text(text)
    return f"cat {path}; exit {status}"


def test_ping_result_has_shortest_median_deviation_and_loss() -> None:
    result = parse_ping(PING)
    times = [0.049, 0.050, 0.051, 0.056, 0.063, 0.071]
    mean = sum(times) / 6
    assert (result.sent, result.lost) == (8, 0.25)
    assert result.shortest_ms == 0.049
    assert result.median_ms == pytest.approx((0.051 + 0.056) / 2)
    assert result.deviation_ms == pytest.approx(math.sqrt(sum((time - mean) ** 2 for time in times) / 6))
    # ping's own mean deviation, of the same times, to the digits that it prints.
    assert result.deviation_ms == pytest.approx(0.008, abs=0.0005)


def test_the_median_of_an_odd_number_of_replies_is_the_middle_one() -> None:
    lines = PING.splitlines()
    assert parse_ping("\n".join([*lines[:3], *lines[4:]])).median_ms == 0.056


def test_a_ping_without_any_reply_has_no_times() -> None:
    result = parse_ping(PING_UNANSWERED)
    assert (result.sent, result.lost) == (3, 1.0)
    assert math.isnan(result.shortest_ms)
    assert math.isnan(result.median_ms)
    assert math.isnan(result.deviation_ms)


@pytest.mark.parametrize("time", ["0.9", "12.3", "123"])
def test_replies_are_read_however_many_digits_they_have(time: str) -> None:
    text = PING_UNANSWERED.replace("\n\n---", f"\n64 bytes from 10.9.0.2: icmp_seq=1 ttl=64 time={time} ms\n\n---")
    assert parse_ping(text).median_ms == float(time)


@pytest.mark.parametrize("words", [PING_UNKNOWN, "ping: connect: Network is unreachable\n"])
def test_failed_ping_is_reported_with_its_output(words: str) -> None:
    with pytest.raises(ValueError, match=f"^ping sent nothing: {words.strip()}$"):
        parse_ping(words)


@pytest.mark.parametrize("output", ["", "\n", PING.replace("8 packets transmitted, 6", "0 packets transmitted, 0")])
def test_ping_without_output_sent_nothing(output: str) -> None:
    with pytest.raises(ValueError, match=r"^ping sent nothing"):
        parse_ping(output)


def test_a_ping_asks_the_other_host_as_often_as_it_is_reported(tmp_path: Path) -> None:
    hosts = Programs(printing(tmp_path, PING, 1))
    assert ping(hosts.spawn, "east-0", "west-1", 8) == parse_ping(PING)
    ((host, argv),) = hosts.started
    assert (host, argv[-1]) == ("east-0", "west-1")
    assert argv[argv.index("-c") + 1] == "8"


def test_a_ping_that_fails_is_reported_with_its_path(tmp_path: Path) -> None:
    hosts = Programs(printing(tmp_path, PING_UNKNOWN, 2))
    with pytest.raises(MeasurementError, match=r"^east-0 to west-1: ping sent nothing: ping: nowhere\.invalid: Temp"):
        ping(hosts.spawn, "east-0", "west-1")


def test_hanging_ping_is_killed_and_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wanbed.testbed.hosts.ping.PATIENCE_S", 0.05)
    hosts = Programs("exec sleep 60")
    with pytest.raises(MeasurementError, match=r"^east-0 to west-1: ping hung for 0 s$"):
        ping(hosts.spawn, "east-0", "west-1", 1)
    assert hosts.processes[0].poll() is not None

"""A probe over the machine's own loopback writes a log of every packet."""

from pathlib import Path
from threading import Thread

import pytest

from tests.support.workloads.loopback_ranks import free_ports
from wanbed.ground.errors import InputError
from wanbed.runner.learnt_links.csv_log import read_csv_log
from wanbed.runner.learnt_links.probe import ProbePattern, receive_probe, send_probe


def test_every_packet_over_loopback_is_in_the_log(tmp_path: Path) -> None:
    (port,), pattern = free_ports(1), ProbePattern(0.5, 100, 200, train_packets=5, train_every_s=0.25, seed=2)
    receiver = Thread(target=receive_probe, args=(port,), daemon=True)
    receiver.start()
    counted = send_probe("127.0.0.1", port, pattern, tmp_path / "log.csv")
    receiver.join(10)
    log = read_csv_log(tmp_path / "log.csv")
    assert counted.sent == counted.arrived == len(log) == len(list(pattern.times_s()))
    assert log.loss == 0
    assert set(log.size_bytes.tolist()) == {200}


def test_a_pattern_has_its_packets_in_order_and_in_time() -> None:
    times = list(ProbePattern(10, 50, 200, train_packets=7, train_every_s=1.0, seed=2).times_s())
    assert times == sorted(times)
    assert max(times) < 10
    assert sum(times.count(each) == 7 for each in set(times)) == 10
    assert len(times) - 70 == pytest.approx(500, rel=0.2)


def test_a_pattern_without_trains_has_single_packets_only() -> None:
    times = list(ProbePattern(5, 50, 200, train_packets=0, train_every_s=1.0, seed=2).times_s())
    assert len(set(times)) == len(times) > 150


def test_where_nothing_receives_the_probe_says_what_to_start(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere.invalid: no probe receives there .*: start wanbed probe --receive"):
        send_probe("nowhere.invalid", 9, ProbePattern(1, 50, 200, 0, 1.0, 1), tmp_path / "log.csv")
    assert list(tmp_path.iterdir()) == []

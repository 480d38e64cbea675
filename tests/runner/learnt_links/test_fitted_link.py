"""What is fitted to a log of a known link is that link."""

import random

import numpy as np
import pytest

from tests.support.runner.known_links import KnownLink, known_log
from wanbed.ground.errors import InputError
from wanbed.runner.learnt_links.fitted_link import fit_link
from wanbed.runner.learnt_links.packet_log import LOST_NS, PacketLog

LINKS = {
    "bursts of others": KnownLink(),
    "more than the link carries": KnownLink(cross_bps=24e6),
    "steady others": KnownLink(cross_bps=10e6, busy_s=1e6),
    "nobody else": KnownLink(cross_bps=0.0),
    "noise of 50 us": KnownLink(noise_s=50e-6),
    "random loss": KnownLink(random_loss=0.01),
    "fast and far": KnownLink(base_delay_s=0.080, rate_bps=100e6, cross_bps=90e6, buffer_bytes=100_000),
    "slow and near": KnownLink(base_delay_s=0.005, rate_bps=2e6, cross_bps=1e6, buffer_bytes=20_000),
}


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("link", LINKS.values(), ids=LINKS)
def test_delay_rate_and_buffer_are_those_of_the_link(link: KnownLink, seed: int) -> None:
    found = fit_link(known_log(link, seed=seed))
    assert found.base_delay_ns == pytest.approx(link.base_delay_s * 1e9, rel=0.01)
    assert found.rate_bps == pytest.approx(link.rate_bps, rel=0.03)
    if found.buffer.buffer_bytes is not None:
        assert found.buffer.buffer_bytes == pytest.approx(link.buffer_bytes, rel=0.10)
    assert found.buffer.largest_backlog_bytes <= link.buffer_bytes * 1.01


@pytest.mark.parametrize("name", ["bursts of others", "more than the link carries", "random loss", "slow and near"])
def test_a_buffer_that_overflows_is_found(name: str) -> None:
    assert fit_link(known_log(LINKS[name])).buffer.buffer_bytes is not None


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("cross_bps", [0.0, 10e6])
@pytest.mark.parametrize("behind", [False, True], ids=["before the queue", "behind it"])
def test_losses_at_random_show_neither_a_buffer_nor_traffic_of_others(
    behind: bool, cross_bps: float, seed: int
) -> None:
    link = KnownLink(random_loss=0.02, lost_behind=behind, cross_bps=cross_bps, busy_s=1e6, buffer_bytes=10**9)
    found = fit_link(known_log(link, seed=seed))
    assert found.buffer.buffer_bytes is None
    assert found.buffer.random_loss == pytest.approx(0.02, rel=0.2)
    # What was lost behind the queue may look like others', if nothing else shows that it was in it: 27 kbit/s.
    assert found.cross_traffic.rate_bps.mean() == pytest.approx(cross_bps, rel=0.05, abs=28e3)
    assert found.cross_traffic.rate_bps.max() <= found.rate_bps


@pytest.mark.parametrize("gap_ns", [1000, 100_000])
@pytest.mark.parametrize("behind", [False, True], ids=["before the queue", "behind it"])
def test_trains_alone_that_lose_packets_at_random_show_nobody_else(behind: bool, gap_ns: int) -> None:
    # 20 packets of 0.5 ms each a train. The first of a train may be lost, long after the last of the one before.
    draw, service_ns, free_ns = random.Random(1), 500_000, 0
    send_ns, arrival_ns = [], []
    for number in range(4000):
        at_ns = number // 20 * 10**8 + number % 20 * gap_ns
        lost = draw.random() < 0.02
        if not lost or behind:
            free_ns = max(free_ns, at_ns) + service_ns
        send_ns.append(at_ns)
        arrival_ns.append(LOST_NS if lost else free_ns + 25_000_000)
    found = fit_link(PacketLog(np.array(send_ns), np.full(4000, 1250), np.array(arrival_ns)))
    assert found.buffer.buffer_bytes is None
    assert found.cross_traffic.rate_bps.max() == pytest.approx(0, abs=1e3)


def test_the_mean_of_the_cross_traffic_is_right_and_its_bursts_stand_out() -> None:
    steady = fit_link(known_log(LINKS["steady others"])).cross_traffic.rate_bps
    assert steady.mean() == pytest.approx(10e6, rel=0.03)
    bursts = fit_link(known_log(KnownLink(busy_s=5, idle_s=5))).cross_traffic.rate_bps
    assert np.quantile(bursts, 0.1) < 2e6
    assert np.quantile(bursts, 0.9) > 13e6
    assert fit_link(known_log(LINKS["nobody else"])).cross_traffic.rate_bps.max() < 1


def test_a_log_without_trains_does_not_show_a_rate() -> None:
    send_ns = np.arange(1000) * 10**8
    log = PacketLog(send_ns, np.full(1000, 1200), send_ns + 30_000_000)
    with pytest.raises(InputError, match=r"only 0 of 1000 packets queued behind the one before, and 20 are needed"):
        fit_link(log)


def test_a_log_that_is_too_short_or_lost_is_refused() -> None:
    send_ns = np.arange(200) * 10**6
    with pytest.raises(InputError, match=r"99 packets to fit a link to, and 100 are needed"):
        fit_link(PacketLog(send_ns[:99], np.full(99, 1200), send_ns[:99] + 1))
    with pytest.raises(InputError, match=r"only 0 of 200 packets arrived"):
        fit_link(PacketLog(send_ns, np.full(200, 1200), np.full(200, LOST_NS)))

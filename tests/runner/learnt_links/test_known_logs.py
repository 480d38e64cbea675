"""Whatever log of a known link is given: what is fitted is within stated errors, or one line says why not.

``python -m tests.bench.bench_learnt_links`` prints the truths, fits and errors of docs/learning-a-link.md.
"""

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.runner.known_captures import (
    LINK_HEADERS,
    START_NS,
    both_ends,
    in_frames,
    pcap,
    pcapng,
    probe_arrivals,
    tcp_packet,
    udp_packet,
)
from tests.support.runner.known_links import KnownLink, known_log
from wanbed.ground.errors import InputError
from wanbed.netem_profiles.traces import csv_trace, offered_trace
from wanbed.results.text import UNKNOWN, rate_text, seconds_text
from wanbed.runner.learnt_links.condition_trace import write_cross_traffic
from wanbed.runner.learnt_links.held_out import LEARNT, LearntLink, learn
from wanbed.runner.learnt_links.link_page import cautions, link_charts, link_document, rows
from wanbed.runner.learnt_links.log_file import read_log
from wanbed.runner.learnt_links.packet_log import LOST_NS, PacketFaultError, PacketLog
from wanbed.runner.learnt_links.replay import outcome

SECONDS = 8
PACKET_BYTES = 1200
CROSS_PACKET_BYTES = 1500


@st.composite
def links(draw: st.DrawFn, most_cross: float = 1.3) -> KnownLink:
    """Links with a load of others up to ``most_cross`` of the line, steady or in bursts."""
    rate_bps = draw(st.sampled_from([1e6, 5e6, 20e6, 60e6]))
    buffer_bytes = max(15_000, round(rate_bps / 8 * draw(st.sampled_from([0.02, 0.1, 1]))))
    return KnownLink(
        base_delay_s=draw(st.sampled_from([0.001, 0.03, 0.2])),
        rate_bps=rate_bps,
        buffer_bytes=buffer_bytes,
        cross_bps=rate_bps * draw(st.sampled_from([load for load in (0, 0.3, 0.6, 0.9, 1.3) if load <= most_cross])),
        busy_s=draw(st.sampled_from([0.5, 1e6])),
        idle_s=0.5,
        random_loss=draw(st.sampled_from([0, 0.005, 0.05])),
        lost_behind=draw(st.booleans()),
        noise_s=draw(st.sampled_from([0, 0.03])) * PACKET_BYTES * 8 / rate_bps,
        standing_bytes=draw(st.sampled_from([0, buffer_bytes])),
    )


def is_read_back(learnt: LearntLink, folder: Path) -> None:
    """Hold what is written to what links and flows read."""
    csv_trace("".join(f"{line}\n" for line in learnt.trace.lines()), "trace.csv", "trace.csv")
    path = folder / "cross.csv"
    write_cross_traffic(learnt.link.cross_traffic, path)
    offered_trace(path.read_text(), "cross.csv", "cross.csv")


_FULL = KnownLink(base_delay_s=0.2, rate_bps=5e6, cross_bps=6.5e6, buffer_bytes=62_500, standing_bytes=62_500)
_OF_NINE_TENTHS = KnownLink(base_delay_s=0.2, cross_bps=18e6, buffer_bytes=2_500_000)
_STANDING = KnownLink(base_delay_s=0.001, rate_bps=5e6, cross_bps=3e6, buffer_bytes=625_000, standing_bytes=625_000)


@examples(60, drawn_anew=600)
@given(links(), st.integers(1, 10**6))
@example(replace(_STANDING, busy_s=1e6, random_loss=0.05, lost_behind=False), 720_400).via("no buffer shown")
@example(replace(_FULL, busy_s=1e6, lost_behind=False, noise_s=5.76e-05), 105_855).via(
    "few long spans, alike by chance"
)
@example(KnownLink(0.001, 60e6, 150_000, 54e6, 1e6, 0.5, lost_behind=False, noise_s=4.8e-6), 1950).via(
    "four packets with one of others between them, more often than none"
)
@example(replace(_OF_NINE_TENTHS, busy_s=1e6, random_loss=0.05), 27_855).via("a queue that is seldom idle")
@example(
    KnownLink(0.2, 1e6, 125_000, 6e5, 0.5, 0.5, lost_behind=False, noise_s=2.88e-4, standing_bytes=125_000), 626_041
).via("six packets near the least of a queue that is never empty")
@example(KnownLink(0.2, 1e6, 15_000, 9e5, 1e6, 0.5, random_loss=0.005, noise_s=2.88e-4), 436_451).via(
    "a queue that fills for good, packet by packet"
)
def test_a_fit_is_within_the_stated_errors(
    tmp_path_factory: pytest.TempPathFactory, link: KnownLink, seed: int
) -> None:
    log = known_log(link, SECONDS, seed)
    learnt = learn(log, 0.5, 1)
    fit, cross_bps = learnt.link, learnt.link.cross_traffic.rate_bps
    assert fit.rate_bps == pytest.approx(link.rate_bps, rel=0.05)
    packet_ns, base_ns = PACKET_BYTES * 8e9 / link.rate_bps, link.base_delay_s * 1e9
    assert fit.base_delay_ns >= base_ns - packet_ns / 50
    full_bytes = link.buffer_bytes
    if fit.seen.ever_empty:
        assert fit.base_delay_ns == pytest.approx(base_ns, rel=0.01, abs=packet_ns / 5)
    else:
        assert any("found the queue empty" in caution for caution in cautions(learnt))
        full_bytes -= round((fit.base_delay_ns - base_ns) * link.rate_bps / 8e9)
    # A backlog is a time at the rate, and as far from the truth.
    assert fit.buffer.largest_backlog_bytes <= 1.05 * full_bytes + CROSS_PACKET_BYTES
    if fit.buffer.buffer_bytes is not None:
        assert fit.buffer.buffer_bytes == pytest.approx(full_bytes, rel=0.1, abs=2 * CROSS_PACKET_BYTES)
    else:
        # Of others, no more than the line carries; what the log lost behind the queue may look like theirs.
        assert cross_bps.max() <= fit.rate_bps
        if link.busy_s > SECONDS:
            error_bps = 0.1 * link.rate_bps + link.random_loss * 8 * log.size_bytes.sum() / SECONDS
            assert cross_bps.mean() == pytest.approx(link.cross_bps, abs=error_bps)
    assert not rate_text(float(cross_bps.mean())).startswith("0.0")
    is_read_back(learnt, tmp_path_factory.mktemp("learnt"))


@pytest.mark.parametrize("standing_s", [0.2, 1.5])
def test_replays_begin_with_the_queue_that_the_log_has(standing_s: float) -> None:
    rate_bps = 5e6
    link = KnownLink(
        rate_bps=rate_bps, cross_bps=0, standing_bytes=round(standing_s * rate_bps / 8), buffer_bytes=10**8
    )
    learnt = learn(known_log(link, SECONDS), 0.5, 1)
    assert learnt.truth is not None
    assert max(each.error_ns(learnt.truth) for each in learnt.held_out.values()) < 1e6


def test_what_a_log_queues_by_itself_is_still_there_where_the_replay_begins() -> None:
    # 1.4 Mbit/s of its own, over 1 Mbit/s.
    learnt = learn(known_log(KnownLink(rate_bps=1e6, cross_bps=0, buffer_bytes=10**9), SECONDS), 0.5, 1)
    assert learnt.truth is not None
    assert learnt.truth.delay_ns[0] > 1e9
    assert max(each.error_ns(learnt.truth) for each in learnt.held_out.values()) < 1e7


def test_a_replay_of_which_nothing_arrives_has_no_delay() -> None:
    learnt = learn(known_log(KnownLink(), SECONDS), 0.5, 1)
    lost = replace(learnt, held_out=dict.fromkeys(learnt.held_out, outcome(np.zeros(0), 10)))
    assert link_document(lost, "log.csv", {}, [])["held_out"][LEARNT]["delay_p50_ns"] is None
    (_, delays_s, loss, error_s) = rows(lost)[1]
    assert (seconds_text(delays_s[0]), loss, seconds_text(error_s)) == (UNKNOWN, 1, UNKNOWN)
    assert [chart.reading for chart in link_charts(lost)]


def set_clock(log: PacketLog, at_ns: int, sender_ns: int, receiver_ns: int) -> PacketLog:
    """The log as it is if clocks are set at a moment, in the order of the sender's clock."""
    send_ns = np.where(log.send_ns < at_ns, log.send_ns, log.send_ns + sender_ns)
    arrival_ns = np.where(log.arrival_ns < at_ns, log.arrival_ns, log.arrival_ns + receiver_ns)
    order = np.argsort(send_ns, kind="stable")
    return PacketLog(send_ns[order], log.size_bytes[order], arrival_ns[order])


@examples(40, drawn_anew=400)
@given(
    links(most_cross=0.6),
    st.integers(1, 10**6),
    st.sampled_from([0.2, 0.8]),
    st.sampled_from([(0, 1), (0, -1), (-1, 0), (1, 0)]),
    st.sampled_from([2 * 10**9, 3600 * 10**9, 60 * 86_400 * 10**9]),
)
@example(KnownLink(0.001, 5e6, 62_500, 3e6, 1e6, 0.5, random_loss=0.005), 421_099, 0.8, (0, 1), 2 * 10**9).via(
    "no idle queue on either side"
)
@example(KnownLink(0.03, 1e6, 15_000, 0, 0.5, 0.5), 951_729, 0.2, (0, 1), 3600 * 10**9).via("a train that follows")
def test_a_clock_that_is_set_is_refused(
    link: KnownLink, seed: int, part: float, ways: tuple[int, int], by_ns: int
) -> None:
    link = replace(link, rate_bps=max(5e6, link.rate_bps), standing_bytes=0)
    log = known_log(link, SECONDS, seed)
    with pytest.raises((InputError, PacketFaultError), match=r"clock") as refused:
        learn(set_clock(log, round(part * log.span_ns), by_ns * ways[0], by_ns * ways[1]), 0.5, 1)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("link_type", sorted(LINK_HEADERS))
@pytest.mark.parametrize("write", [pcap, pcapng])
@pytest.mark.parametrize("segments", [1, 10])
def test_captures_of_any_link_type_are_the_log(
    tmp_path: Path, link_type: int, write: Callable[..., Path], segments: int
) -> None:
    log = known_log(KnownLink(random_loss=0.02), 1, sizes_bytes=(300, segments * 1514))
    first, last = np.flatnonzero(log.arrived)[[0, -1]]
    east, west = (
        write(tmp_path / f"{name}.pcap", in_frames(packets, link_type), snap=120, link_type=link_type)
        for name, packets in zip(("east", "west"), both_ends(log), strict=True)
    )
    read = read_log(east, west)
    assert read.size_bytes.tolist() == log.size_bytes[first : last + 1].tolist()
    assert read.delay_ns.tolist() == log.delay_ns.tolist()
    assert read.loss == pytest.approx(float(np.mean(log.arrival_ns[first : last + 1] == LOST_NS)))
    if segments == 1:
        probed = read_log(
            write(tmp_path / "probe.pcap", in_frames(probe_arrivals(log), link_type), snap=120, link_type=link_type)
        )
        assert probed.delay_ns.tolist() == log.delay_ns.tolist()


def test_packets_sent_before_the_receiver_captured_are_not_lost(tmp_path: Path) -> None:
    sent, arrived = both_ends(known_log(KnownLink(cross_bps=0), 2))
    east, west = pcap(tmp_path / "e.pcap", in_frames(sent)), pcap(tmp_path / "w.pcap", in_frames(arrived[50:-20]))
    assert read_log(east, west).loss == 0


def test_packets_that_a_network_card_joined_or_split_are_refused(tmp_path: Path) -> None:
    ones = [(START_NS + number * 10**6, tcp_packet(1448, number * 1448)) for number in range(60)]
    joined = [(at_ns, tcp_packet(3 * 1448, number * 3 * 1448)) for number, (at_ns, _) in enumerate(ones[::3])]
    for here, there in ((ones, joined), (joined, ones)):
        arrived = [(at_ns + 30_000_000, packet) for at_ns, packet in there]
        east, west = pcap(tmp_path / "e.pcap", in_frames(here)), pcap(tmp_path / "w.pcap", in_frames(arrived))
        with pytest.raises(
            InputError, match=r"w.pcap: 20 of 20 packets of the flow .* joins or splits them: .*ethtool"
        ):
            read_log(east, west)


def test_a_capture_of_a_link_type_that_is_not_read_says_which(tmp_path: Path) -> None:
    path = pcap(tmp_path / "wlan.pcap", in_frames([(START_NS, udp_packet(bytes(60), 1))]), link_type=127)
    with pytest.raises(InputError, match=r"wlan.pcap: its packets have the link type 127, and Ethernet, raw IP"):
        read_log(path)


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> list[list[Path]]:
    """A probe's capture and captures of both ends, as pcap and as pcapng."""
    folder = tmp_path_factory.mktemp("captures")
    log = known_log(KnownLink(cross_bps=6e6, busy_s=1e6), 2)
    sent, arrived = map(in_frames, both_ends(log))
    return [
        [write(folder / f"{name}{number}.{write.__name__}", frames, snap=120) for number, frames in enumerate(ends)]
        for write in (pcap, pcapng)
        for name, ends in (("probe", [in_frames(probe_arrivals(log))]), ("ends", [sent, arrived]))
    ]


@examples(60, drawn_anew=2000)
@given(st.data())
def test_a_damaged_capture_is_fitted_or_refused_in_one_line(
    captures: list[list[Path]], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    given_paths = data.draw(st.sampled_from(captures))
    paths = [folder / path.name for path in given_paths]
    for path, whole in zip(paths, given_paths, strict=True):
        path.write_bytes(whole.read_bytes())
    hit = data.draw(st.sampled_from(paths))
    content = bytearray(hit.read_bytes())
    for _ in range(data.draw(st.integers(0, 3))):
        # The headers of the file and of its first packets are worth most.
        near = data.draw(st.booleans())
        content[data.draw(st.integers(0, 400 if near else len(content) - 1))] = data.draw(st.integers(0, 255))
    hit.write_bytes(content[: data.draw(st.sampled_from([len(content), len(content) // 2, 30, 3]))])
    tracemalloc.start()
    try:
        is_read_back(learn(read_log(*paths), 0.5, 1), folder)
    except InputError as error:
        refused = str(error)
    else:
        refused = ""
    finally:
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert "\n" not in refused
    assert peak_bytes < 100e6

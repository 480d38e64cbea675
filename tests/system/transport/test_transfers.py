"""A link is a line: a transfer takes its wire bytes over the rate, and the latency, whatever the pause before it."""

import json

import pytest

from tests.system.transport.transfers import PAUSES_S, RATE_BPS, SIZES, Told, transfers
from tests.system.virtual_time.inside_virtual_time import kernel_or_skip, printed_inside
from wanbed.testbed.network.ethernet import FRAME_BYTES
from wanbed.testbed.network.shared_rate import SUPER_PACKET_NS

SUPER_PACKET_S = max(SUPER_PACKET_NS / 1e9, 8 * 2 * FRAME_BYTES / RATE_BPS)


@pytest.fixture(scope="module")
def in_virtual_time() -> list[Told]:
    """By the number of node pairs at once, from 1."""
    lines: list[Told] = json.loads(printed_inside("tests.system.transport.transfers", kernel_or_skip()))
    return lines


def test_in_virtual_time_a_transfer_of_any_size_takes_as_long_after_any_pause(in_virtual_time: list[Told]) -> None:
    alone, _ = in_virtual_time
    assert [(size, pause_s) for size, pause_s, *_ in alone] == [(size, pause) for size in SIZES for pause in PAUSES_S]
    for size, pause_s, asked_s, measured_s in alone:
        assert measured_s == pytest.approx(asked_s, rel=0.001), (size, pause_s)


def test_in_virtual_time_two_pairs_fill_a_trunk_and_gain_a_packet_at_most(in_virtual_time: list[Told]) -> None:
    _, together = in_virtual_time
    for size, pause_s, asked_s, measured_s in together:
        assert -SUPER_PACKET_S <= measured_s - asked_s <= 0.001 * asked_s, (size, pause_s)


@pytest.mark.measures
def test_on_the_real_clock_a_transfer_is_as_fast_as_the_line_and_never_faster(substrate: str) -> None:
    """A machine that is busy, or whose memory went cold in a pause, makes none of them faster: the shortest counts."""
    text = transfers(substrate, 1, (4 * 2**10, 2**20), (0.005,) * 12)
    for size in {each[0] for each in text}:
        asked_s, shortest_s = min((asked_s, measured_s) for own, _, asked_s, measured_s in text if own == size)
        print(f"{size} bytes: {shortest_s * 1e3:.2f} ms of {asked_s * 1e3:.2f}")
        assert shortest_s == pytest.approx(asked_s, rel=0.03, abs=0.001), size

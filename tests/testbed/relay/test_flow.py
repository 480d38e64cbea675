"""One direction of a connection, with a program that writes and one that reads, on a clock of the test's own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.flow.event_queue import EventQueue
from wanbed.flow.line import Line
from wanbed.flow.window import opened
from wanbed.testbed.network.tcp_settings import TcpSettings
from wanbed.testbed.relay.flow import RelayFlow, piece_bytes
from wanbed.testbed.relay.lanes import OwnLane

MS = 1_000_000
RENO = {"congestion": "reno"}


class Programs:
    """A writer and a reader joined by a flow of ``latency_ms`` each way.

    ``arrived`` has the time (ns) and the number of bytes of each delivery. The reader accepts ``room`` more bytes.
    """

    def __init__(
        self, rate_bps: int | None, latency_ms: int, window_bytes: int | None = None, *, room: int = 1 << 40
    ) -> None:
        line = Line(rate_bps, latency_ms * MS, headers=False)
        settings = TcpSettings(**RENO) if window_bytes is None else TcpSettings(window_bytes=window_bytes, **RENO)
        self.events = EventQueue()
        self.there, self.back = OwnLane(line), OwnLane(line)
        self.unsent, self.closed, self.is_reset = b"", False, False
        self.arrived: list[tuple[int, int]] = []
        self.received = bytearray()
        self.room = room
        self.finished: list[bool] = []
        self.now_ns = 0
        window = opened(line, 1, settings)
        self.flow = RelayFlow(
            self.there, self.back, window, self.events, read=self._read, write=self._write, finish=self._finish
        )

    def _read(self, most_bytes: int) -> bytes:
        if self.is_reset:
            raise ConnectionResetError
        data, self.unsent = self.unsent[:most_bytes], self.unsent[most_bytes:]
        if not data and not self.closed:
            raise BlockingIOError
        return data

    def _write(self, data: memoryview) -> int:
        accepted = min(len(data), self.room)
        self.room -= accepted
        if accepted:
            self.received += data[:accepted]
            self.arrived.append((self.now_ns, accepted))
        return accepted

    def _finish(self, reset: bool) -> None:
        self.finished.append(reset)

    def write(self, data: bytes, now_ns: int = 0) -> None:
        self.run(now_ns)
        self.unsent += data
        self.flow.readable(now_ns)

    def close(self) -> None:
        self.closed = True
        self.flow.readable(self.now_ns)

    def read_more(self, room: int) -> None:
        self.room += room
        self.flow.writable(self.now_ns)

    def run(self, until_ns: int = 1 << 60) -> None:
        while (next_ns := self.events.next_ns) is not None and next_ns <= until_ns:
            self.now_ns = next_ns
            self.events.handle_until(next_ns)

    @property
    def last_ms(self) -> float:
        return self.arrived[-1][0] / MS


def test_a_byte_arrives_one_latency_later() -> None:
    programs = Programs(None, 20)
    programs.write(b"x", 5 * MS)
    programs.run()
    assert programs.arrived == [(25 * MS, 1)]


def test_slow_start_lets_ten_segments_out_and_doubles_every_round_trip() -> None:
    programs = Programs(None, 20)
    programs.write(bytes(1448 * 70))
    programs.run()
    by_ms: dict[int, int] = {}
    for time_ns, size in programs.arrived:
        by_ms[time_ns // MS] = by_ms.get(time_ns // MS, 0) + size
    assert by_ms == {20: 14480, 60: 28960, 100: 57920}


def test_an_open_window_moves_one_window_per_round_trip() -> None:
    window_bytes = 200_000
    programs = Programs(None, 20, window_bytes)
    held_bytes = window_bytes // 2896 * 2896
    programs.write(bytes(held_bytes * 40))
    programs.run()
    by_round: dict[int, int] = {}
    for time_ns, size in programs.arrived:
        by_round[time_ns // (40 * MS)] = by_round.get(time_ns // (40 * MS), 0) + size
    assert list(by_round.values())[10:-1] == [held_bytes] * (len(by_round) - 11)


def test_a_window_above_the_paths_product_leaves_the_rate_to_the_line() -> None:
    programs = Programs(100_000_000, 10, 2_000_000)
    programs.write(bytes(12_500_000))
    programs.run()
    at_500 = sum(size for time_ns, size in programs.arrived if time_ns <= 500 * MS)
    at_900 = sum(size for time_ns, size in programs.arrived if time_ns <= 900 * MS)
    assert at_900 - at_500 == pytest.approx(5_000_000, rel=0.01)


def test_after_a_long_pause_the_window_is_small_again() -> None:
    programs = Programs(None, 20)
    programs.write(bytes(1_000_000))
    programs.run()
    programs.arrived.clear()
    programs.write(bytes(1448 * 30), 60_000 * MS)
    programs.run()
    assert programs.arrived[0] == (60_020 * MS, 14480)


def test_acknowledgements_wait_behind_the_bytes_of_the_other_direction() -> None:
    quiet, busy = Programs(100_000_000, 20), Programs(100_000_000, 20)
    busy.back.queue(0, 625_000, lambda *_: None)
    for programs in (quiet, busy):
        programs.write(bytes(1448 * 30))
        programs.run()
    # The other direction is busy for 50 ms, and the first acknowledgement would have left at 20 ms.
    assert busy.last_ms - quiet.last_ms == pytest.approx(30, abs=2)


def test_a_reader_that_does_not_read_stops_the_sender_and_goes_on_where_it_was() -> None:
    programs = Programs(None, 10, 100_000, room=50_000)
    programs.write(bytes(range(256)) * 8000)
    programs.run()
    assert len(programs.received) == 50_000
    assert programs.flow.held_bytes <= 70_000
    assert len(programs.unsent) >= 2_048_000 - 50_000 - 70_000
    programs.read_more(1 << 40)
    programs.run()
    assert programs.received == bytes(range(256)) * 8000


def test_without_latency_what_is_held_for_a_slow_reader_is_bounded() -> None:
    programs = Programs(None, 0, room=0)
    programs.write(bytes(20_000_000))
    programs.run()
    assert programs.flow.held_bytes <= 1 << 20
    programs.read_more(1 << 40)
    programs.run()
    assert len(programs.received) == 20_000_000


@pytest.mark.parametrize("is_reset", [False, True])
def test_the_end_of_a_connection_arrives_after_its_bytes(is_reset: bool) -> None:
    programs = Programs(100_000_000, 10)
    programs.write(bytes(10_000))
    programs.is_reset = is_reset
    programs.close()
    programs.run(10 * MS)
    assert programs.finished == []
    programs.run()
    assert (len(programs.received), programs.finished) == (10_000, [is_reset])


@given(
    st.lists(st.tuples(st.integers(0, 80 * MS), st.binary(min_size=1, max_size=60_000)), min_size=1, max_size=12),
    st.sampled_from([None, 10_000_000, 1_000_000_000]),
    st.sampled_from([0, 1, 30]),
    st.sampled_from([None, 4_096, 100_000]),
)
def test_every_byte_arrives_once_in_order_and_not_before_its_latency(
    writes: list[tuple[int, bytes]], rate_bps: int | None, latency_ms: int, window_bytes: int | None
) -> None:
    programs, now_ns = Programs(rate_bps, latency_ms, window_bytes), 0
    for pause_ns, data in writes:
        now_ns += pause_ns
        programs.write(data, now_ns)
    programs.close()
    programs.run()
    assert programs.received == b"".join(data for _, data in writes)
    assert programs.finished == [False]
    assert programs.arrived[0][0] >= writes[0][0] + latency_ms * MS


def test_pieces_last_2_ms_on_the_line_within_bounds() -> None:
    rates = (1_000_000, 100_000_000, 100_000_000_000, None)
    assert [piece_bytes(Line(rate, 0, headers=True)) for rate in rates] == [16_384, 25_000, 131_072, 131_072]

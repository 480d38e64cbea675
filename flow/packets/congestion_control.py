"""Choose the congestion window and the pace of a connection, step by step as Linux 6.1 does: cubic, reno or BBR.

``Cubic`` has the steps of ``net/ipv4/tcp_cubic.c`` and ``tcp_cong.c``, in segments and in seconds, with HyStart and
restarts after idle. Its window grows as ``C (t - K)^3 + W_max`` after a loss, but no slower than Reno's would (RFC
9438, sections 4.2 and 4.3).

``Bbr`` is BBR, version 1, with the steps of ``net/ipv4/tcp_bbr.c`` and ``tcp_rate.c`` (Cardwell et al., "BBR:
congestion-based congestion control", 2016), without its detection of policers, which begins at a fifth of the packets
lost. It sends at the largest rate that was delivered lately, with two bandwidth-delay products in flight. A loss does
not reduce the rate; the window keeps to what arrives for a round, and then has its former size again.
"""

from collections import deque
from enum import IntEnum
from random import Random
from typing import Final

from wanbed.flow.packets.packet import INITIAL_SEGMENTS, UNLIMITED, Packet, Stamp
from wanbed.flow.packets.tick import MET_AT_ONCE, TICK_NS, Ticks

_HIGH_GAIN: Final = 2.885
_DRAIN_GAIN: Final = 1 / 2.885
_WINDOW_GAIN: Final = 2.0
_CYCLE: Final[tuple[float, ...]] = (1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
_ROUNDS: Final = 10
_FULL_GROWTH: Final = 1.25
_FULL_ROUNDS: Final = 3
_MARGIN: Final = 0.99
_BBR_LEAST_SEGMENTS: Final = 4
_EXPIRY_NS: Final = 10_000_000_000
_PROBE_NS: Final = 200_000_000
_FIRST_RTT_NS: Final = 1_000_000
_BURST_NS: Final = 1 << 20
_LEAST_BURST, _MOST_BURST = 2, 44


class _Mode(IntEnum):
    STARTUP = 0
    DRAIN = 1
    PROBE_RATE = 2
    PROBE_RTT = 3


class Bbr:
    """The window and the pace of one connection. ``seed`` draws the phase in which it begins to probe."""

    is_paced = True

    def __init__(self, rtt_ns: int, seed: str) -> None:
        self.window, self.threshold = INITIAL_SEGMENTS, UNLIMITED
        self._draw = Random(seed)  # noqa: S311 - nothing is kept secret by it
        self._mode = _Mode.STARTUP
        self._gain, self._window_gain = _HIGH_GAIN, _HIGH_GAIN
        self._rate = 0.0
        self._pace = _HIGH_GAIN * INITIAL_SEGMENTS / (rtt_ns or _FIRST_RTT_NS)
        self._rates: deque[tuple[int, float]] = deque()
        self._rounds, self._round_end, self._round_starts = 0, 0, False
        self._full_rate, self._full_rounds, self._is_full = 0.0, 0, False
        self._least_rtt_ns, self._least_ns = rtt_ns, 0
        self._phase, self._phase_ns = 0, 0
        self._probe_end_ns, self._probe_round = -1, False
        self._delivered, self._delivered_ns, self._first_ns = 0, 0, 0
        self._limited_until = 0
        self._conserves, self._recovered = False, True
        self._before = 0
        self._idle = False
        self._sample: Packet | None = None
        self._sample_limited = False

    @property
    def in_slow_start(self) -> bool:
        """Tell whether it still looks for the line's rate."""
        return self._mode is _Mode.STARTUP

    def pace_ns(self, segments: int) -> int:
        """Return the time over which that many segments are sent."""
        return int(segments / self._pace)

    @property
    def burst_segments(self) -> int:
        """The number of segments that are sent at once."""
        return min(max(int(self._pace * _BURST_NS), _LEAST_BURST), _MOST_BURST)

    def stamped(self, now_ns: int, *, idle: bool) -> Stamp:
        """Return the stamp of a packet that is sent now, which measures the rate when it has arrived."""
        if idle:
            self._first_ns = self._delivered_ns = now_ns
        return Stamp(self._delivered, self._delivered_ns, self._first_ns, self._limited_until > 0)

    def ran_out(self, in_flight: int) -> None:
        """Handle that there is nothing to send, so that rates are not those of the line."""
        self._limited_until = max(self._delivered + in_flight, 1)

    def resumed(self, idle_ns: int, now_ns: int) -> None:
        """Handle that the connection sends again after a pause."""
        if self._limited_until:
            self._idle = True
            if self._mode is _Mode.PROBE_RATE:
                self._set_pace(1.0)
            elif self._mode is _Mode.PROBE_RTT:
                self._end_probe(now_ns)

    def arrived(self, packet: Packet, now_ns: int) -> None:
        """Handle that a packet has arrived."""
        self._delivered += packet.segments
        self._delivered_ns = now_ns
        stamp = packet.stamp
        if stamp is None:
            return
        if self._sample is None or self._sample.stamp is None or stamp.delivered >= self._sample.stamp.delivered:
            self._sample = packet
            self._first_ns = packet.sent_ns

    def sampled(self, now_ns: int, rtt_ns: int, una: int, sent: int, pace: int) -> None:
        """Handle a round-trip time."""
        expired = now_ns > self._least_ns + _EXPIRY_NS
        if rtt_ns <= self._least_rtt_ns or not self._least_rtt_ns or expired:
            self._least_rtt_ns, self._least_ns = rtt_ns, now_ns
        if expired and not self._idle and self._mode is not _Mode.PROBE_RTT:
            self._mode = _Mode.PROBE_RTT
            self._gain = self._window_gain = 1.0
            self._before = max(self._before, self.window)
            self._probe_end_ns = -1

    def control(self, now_ns: int, delivered: int, lost: int, in_flight: int, *, recovers: bool) -> None:
        """Handle an acknowledgement of ``delivered`` segments, after which ``in_flight`` are on their way."""
        self._measure(now_ns)
        self._advance_phase(now_ns, in_flight, lost)
        self._look_for_full()
        if self._mode is _Mode.STARTUP and self._is_full:
            self._mode, self._gain, self._window_gain = _Mode.DRAIN, _DRAIN_GAIN, _HIGH_GAIN
        if self._mode is _Mode.DRAIN and in_flight <= self._held(1.0):
            self._begin_probing(now_ns)
        if self._mode is _Mode.PROBE_RTT:
            self._probe(now_ns, in_flight)
        if delivered:
            self._idle = False
        self._set_pace(self._gain)
        self._set_window(delivered, lost, in_flight, recovers=recovers)

    def _measure(self, now_ns: int) -> None:
        """Measure the rate at which the newest segment and those before it arrived (Linux: ``tcp_rate_gen``)."""
        self._round_starts = False
        packet, self._sample = self._sample, None
        if self._limited_until and self._delivered > self._limited_until:
            self._limited_until = 0
        if packet is None or packet.stamp is None:
            return
        stamp = packet.stamp
        took_ns = max(packet.sent_ns - stamp.first_ns, now_ns - stamp.delivered_ns)
        if stamp.delivered >= self._round_end:
            self._round_end = self._delivered
            self._rounds += 1
            self._round_starts = True
            self._conserves = False
        if took_ns <= 0 or took_ns < self._least_rtt_ns:
            return
        rate = (self._delivered - stamp.delivered) / took_ns
        if not stamp.limited or rate >= self._rate:
            rates = self._rates
            while rates and rates[-1][1] <= rate:
                rates.pop()
            rates.append((self._rounds, rate))
            while rates[0][0] <= self._rounds - _ROUNDS:
                rates.popleft()
            self._rate = rates[0][1]
        self._sample_limited = stamp.limited

    def _look_for_full(self) -> None:
        if self._is_full or not self._round_starts or self._sample_limited:
            return
        if self._rate >= self._full_rate * _FULL_GROWTH:
            self._full_rate, self._full_rounds = self._rate, 0
            return
        self._full_rounds += 1
        self._is_full = self._full_rounds >= _FULL_ROUNDS

    def _advance_phase(self, now_ns: int, in_flight: int, lost: int) -> None:
        if self._mode is not _Mode.PROBE_RATE:
            return
        long = now_ns - self._phase_ns > self._least_rtt_ns
        if self._gain > 1:
            over = long and (lost > 0 or in_flight >= self._held(self._gain))
        elif self._gain < 1:
            over = long or in_flight <= self._held(1.0)
        else:
            over = long
        if over:
            self._phase, self._phase_ns = (self._phase + 1) % len(_CYCLE), now_ns
            self._gain = _CYCLE[self._phase]

    def _begin_probing(self, now_ns: int) -> None:
        self._mode, self._window_gain = _Mode.PROBE_RATE, _WINDOW_GAIN
        self._phase = (len(_CYCLE) - self._draw.randrange(len(_CYCLE) - 1)) % len(_CYCLE)
        self._phase_ns, self._gain = now_ns, _CYCLE[self._phase]

    def _probe(self, now_ns: int, in_flight: int) -> None:
        """Hold few segments in flight for 200 ms and a round, to measure the round-trip time."""
        self._limited_until = max(self._delivered + in_flight, 1)
        if self._probe_end_ns < 0:
            if in_flight <= _BBR_LEAST_SEGMENTS:
                self._probe_end_ns, self._probe_round = now_ns + _PROBE_NS, False
                self._round_end = self._delivered
            return
        self._probe_round = self._probe_round or self._round_starts
        if self._probe_round:
            self._end_probe(now_ns)

    def _end_probe(self, now_ns: int) -> None:
        if self._probe_end_ns < 0 or now_ns <= self._probe_end_ns:
            return
        self._least_ns = now_ns
        self.window = max(self.window, self._before)
        if self._is_full:
            self._begin_probing(now_ns)
        else:
            self._mode, self._gain, self._window_gain = _Mode.STARTUP, _HIGH_GAIN, _HIGH_GAIN

    def _held(self, gain: float) -> int:
        """Return the segments in flight at ``gain`` times the bandwidth-delay product, with room for bursts."""
        segments = int(self._rate * self._least_rtt_ns * gain) + 1 if self._rate else INITIAL_SEGMENTS
        segments += 3 * self.burst_segments
        segments += segments % 2
        return segments + (2 if self._mode is _Mode.PROBE_RATE and not self._phase else 0)

    def _set_pace(self, gain: float) -> None:
        if not self._rate:
            return
        pace = self._rate * gain * _MARGIN
        if self._is_full or pace > self._pace:
            self._pace = pace

    def _set_window(self, delivered: int, lost: int, in_flight: int, *, recovers: bool) -> None:
        if delivered:
            window = max(self.window - lost, 1) if lost else self.window
            if recovers and self._recovered:
                self._conserves, self._recovered = True, False
                self._round_end = self._delivered
                window = in_flight + delivered
            elif not recovers and not self._recovered:
                self._recovered, self._conserves = True, False
                window = max(window, self._before)
            if self._conserves:
                window = max(window, in_flight + delivered)
            else:
                target = self._held(self._window_gain)
                if self._is_full:
                    window = min(window + delivered, target)
                elif window < target or self._delivered < INITIAL_SEGMENTS:
                    window += delivered
                window = max(window, _BBR_LEAST_SEGMENTS)
            self.window = window
        if self._mode is _Mode.PROBE_RTT:
            self.window = min(self.window, _BBR_LEAST_SEGMENTS)

    def reduced(self) -> int:
        """Handle that a recovery begins: remember the window."""
        kept = not self._recovered or self._mode is _Mode.PROBE_RTT
        self._before = max(self._before, self.window) if kept else self.window
        return self.threshold

    def timed_out(self, now_ns: int, sent: int) -> None:
        """Handle that a retransmission timeout has passed."""
        self._recovered = False
        self._full_rate = 0.0
        self._round_starts = True

    def acknowledged(self, now_ns: int, segments: int) -> None:
        """Do nothing: ``control`` handles acknowledgements."""


_BETA: Final = 717 / 1024
_C: Final = 0.4

_RENO_SEGMENTS: Final = 15 / 8
"""Segments acknowledged for each segment of window, after which Reno's window grows by one: 3 (1 + b) / (1 - b) / 8."""

_LEAST_SEGMENTS: Final = 16
_SAMPLES: Final = 8
_TRAIN_NS: Final = 2_000_000
_PACKETS_BYTES, _MOST_PACKETS_NS = 4 * 65_536, 1_000_000
_LEAST_DELAY_NS: Final = 4_000_000
_MOST_DELAY_NS: Final = 16_000_000
_SETTLING_TICKS: Final = 100


class Cubic:
    """The window of one connection. ``window`` and ``threshold`` count segments. ``is_reno`` leaves cubic out.

    ``rtt_ns`` is that of the first bytes, 0 if there were none: HyStart takes longer round trips for late ones.
    """

    __slots__ = (
        "_acknowledged",
        "_acknowledged_ns",
        "_count",
        "_counted",
        "_epoch",
        "_found",
        "_is_reno",
        "_k_s",
        "_least_rtt_ns",
        "_most",
        "_origin",
        "_reno",
        "_round_end",
        "_round_ns",
        "_round_rtt_ns",
        "_samples",
        "_ticks",
        "_updated",
        "_updated_window",
        "threshold",
        "window",
    )

    is_paced = False

    def __init__(self, rtt_ns: int = 0, *, is_reno: bool = False, ticks: Ticks = MET_AT_ONCE) -> None:
        self._ticks = ticks
        self.window, self.threshold = INITIAL_SEGMENTS, UNLIMITED
        self._is_reno = is_reno
        self._counted = self._acknowledged = 0
        self._round_end = self._round_ns = self._acknowledged_ns = 0
        self._round_rtt_ns, self._samples = 0, 0
        self._reset()
        self._least_rtt_ns = rtt_ns

    def _reset(self) -> None:
        self._count = 1
        self._most = 0.0
        self._updated_window, self._updated = 0, -1
        self._origin, self._k_s, self._epoch = 0.0, 0.0, -1
        self._reno = 0.0
        self._found = False
        self._least_rtt_ns = 0

    @property
    def in_slow_start(self) -> bool:
        """Tell whether the window is below the threshold."""
        return self.window < self.threshold

    def sampled(self, now_ns: int, rtt_ns: int, una: int, sent: int, pace: int) -> None:
        """Handle a round-trip time.

        ``una`` and ``sent`` are the first byte not acknowledged and not sent, ``pace`` is in bytes a second.
        """
        if self._is_reno:
            return
        tick = self._ticks.count(now_ns)
        if self._epoch >= 0 and tick - self._epoch < _SETTLING_TICKS:
            return
        if not self._least_rtt_ns or rtt_ns < self._least_rtt_ns:
            self._least_rtt_ns = rtt_ns
        if not self._found and self.in_slow_start:
            self._judge(now_ns, rtt_ns, una, sent, pace)

    def _judge(self, now_ns: int, rtt_ns: int, una: int, sent: int, pace: int) -> None:
        """Leave slow start if acknowledgements come in a long train, or late (HyStart)."""
        if una > self._round_end:
            self._begin_round(now_ns, sent)
        if self.window < _LEAST_SEGMENTS:
            return
        if now_ns - self._acknowledged_ns <= _TRAIN_NS:
            self._acknowledged_ns = now_ns
            packets_ns = min(_MOST_PACKETS_NS, _PACKETS_BYTES * 10**9 // pace) if pace else 0
            if now_ns - self._round_ns > (self._least_rtt_ns + packets_ns) // 2:
                self._found = True
        self._round_rtt_ns = min(self._round_rtt_ns or rtt_ns, rtt_ns)
        if self._samples < _SAMPLES:
            self._samples += 1
        elif self._round_rtt_ns > self._least_rtt_ns + min(
            max(self._least_rtt_ns // 8, _LEAST_DELAY_NS), _MOST_DELAY_NS
        ):
            self._found = True
        if self._found:
            self.threshold = self.window

    def _begin_round(self, now_ns: int, sent: int) -> None:
        self._round_ns = self._acknowledged_ns = now_ns
        self._round_end = sent
        self._round_rtt_ns, self._samples = 0, 0

    def acknowledged(self, now_ns: int, segments: int) -> None:
        """Open the window after that many segments were acknowledged while it was the limit."""
        if self.in_slow_start:
            opened = min(self.window + segments, self.threshold)
            segments -= opened - self.window
            self.window = opened
            if not segments:
                return
        if self._is_reno:
            self._open(self.window, segments)
        else:
            self._update(self._ticks.count(now_ns), segments)
            self._open(self._count, segments)

    def _open(self, count: int, segments: int) -> None:
        if self._counted >= count:
            self._counted = 0
            self.window += 1
        self._counted += segments
        if self._counted >= count:
            opened = self._counted // count
            self._counted -= opened * count
            self.window += opened

    def _update(self, tick: int, segments: int) -> None:
        """Set after how many acknowledged segments the window grows by one."""
        window = self.window
        self._acknowledged += segments
        if self._updated_window == window and tick - self._updated <= 3:
            return
        if self._epoch < 0 or tick != self._updated:
            self._updated_window, self._updated = window, tick
            if self._epoch < 0:
                self._epoch, self._acknowledged, self._reno = tick, segments, float(window)
                self._origin = max(self._most, float(window))
                self._k_s = ((self._origin - window) / _C) ** (1 / 3)
            passed_s = ((tick - self._epoch) * TICK_NS + self._least_rtt_ns) / 1e9
            target = self._origin + _C * (passed_s - self._k_s) ** 3
            self._count = int(window / (target - window)) if target >= window + 1 else 100 * window
            if not self._most:
                self._count = min(self._count, 20)
        while self._acknowledged > (delta := int(window * _RENO_SEGMENTS)):
            self._acknowledged -= delta
            self._reno += 1
        if self._reno > window:
            self._count = min(self._count, int(window / (self._reno - window)))
        self._count = max(self._count, 2)

    def reduced(self) -> int:
        """Handle a loss. Return the new threshold."""
        if self._is_reno:
            return max(self.window // 2, 2)
        self._epoch = -1
        window = self.window
        self._most = window * (1 + _BETA) / 2 if window < self._most else float(window)
        return max(int(window * _BETA), 2)

    def timed_out(self, now_ns: int, sent: int) -> None:
        """Handle that a retransmission timeout has passed."""
        self._reset()
        self._begin_round(now_ns, sent)

    def resumed(self, idle_ns: int, now_ns: int) -> None:
        """Handle that the connection sends again after a pause, which does not count as time since the last loss."""
        if self._epoch >= 0 and idle_ns > 0:
            self._epoch = min(self._epoch + idle_ns // TICK_NS, self._ticks.count(now_ns))

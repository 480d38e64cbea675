"""The congestion window of a Linux connection under cubic or reno: RFC 9438, HyStart, and restarts after idle.

The steps are those of ``net/ipv4/tcp_cubic.c`` and ``tcp_cong.c`` of Linux 6.1, in segments and in seconds. Cubic's
window grows as ``C (t - K)^3 + W_max`` after a loss, but no slower than Reno's would (RFC 9438, sections 4.2 and 4.3).
"""

from typing import Final

from wanbed.runner.simulator.segments.segment import INITIAL_SEGMENTS, UNLIMITED

_BETA: Final = 717 / 1024
_C: Final = 0.4
_RENO_SEGMENTS: Final = 15 / 8
"""Segments acknowledged for each segment of window, after which Reno's window grows by one: 3 (1 + b) / (1 - b) / 8."""
_LEAST_SEGMENTS: Final = 16
_SAMPLES: Final = 8
_TRAIN_NS: Final = 2_000_000
_LEAST_DELAY_NS: Final = 4_000_000
_MOST_DELAY_NS: Final = 16_000_000
_TICK_NS: Final = 10_000_000
_SETTLING_TICKS: Final = 100


class Cubic:
    """The window of one connection. ``window`` and ``threshold`` count segments. ``is_reno`` leaves cubic out."""

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
        "_updated",
        "_updated_window",
        "threshold",
        "window",
    )

    is_paced = False

    def __init__(self, *, is_reno: bool = False) -> None:
        self.window, self.threshold = INITIAL_SEGMENTS, UNLIMITED
        self._is_reno = is_reno
        self._counted = self._acknowledged = 0
        self._round_end = self._round_ns = self._acknowledged_ns = 0
        self._round_rtt_ns, self._samples = 0, 0
        self._reset()

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
        """Whether the window is below the threshold."""
        return self.window < self.threshold

    def sampled(self, now_ns: int, rtt_ns: int, una: int, sent: int) -> None:
        """Handle a round-trip time. ``una`` and ``sent`` are the first byte not acknowledged and not sent."""
        if self._is_reno:
            return
        tick = now_ns // _TICK_NS
        if self._epoch >= 0 and tick - self._epoch < _SETTLING_TICKS:
            return
        if not self._least_rtt_ns or rtt_ns < self._least_rtt_ns:
            self._least_rtt_ns = rtt_ns
        if not self._found and self.in_slow_start and self.window >= _LEAST_SEGMENTS:
            self._judge(now_ns, rtt_ns, una, sent)

    def _judge(self, now_ns: int, rtt_ns: int, una: int, sent: int) -> None:
        """Leave slow start if acknowledgements come in a long train, or late (HyStart)."""
        if una > self._round_end:
            self._begin_round(now_ns, sent)
        if now_ns - self._acknowledged_ns <= _TRAIN_NS:
            self._acknowledged_ns = now_ns
            if now_ns - self._round_ns > self._least_rtt_ns // 2:
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
            self._update(now_ns // _TICK_NS, segments)
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
            passed_s = ((tick - self._epoch) * _TICK_NS + self._least_rtt_ns) / 1e9
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
            self._epoch = min(self._epoch + idle_ns // _TICK_NS, now_ns // _TICK_NS)

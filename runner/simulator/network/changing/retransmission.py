"""Model when TCP goes on after an outage: its retransmission timer doubles from timeout to timeout.

Linux sends the first unacknowledged segment again when the timer expires, and nothing else until that is acknowledged
(RFC 6298; ``tcp_retransmit_timer`` in net/ipv4/tcp_timer.c). So a transfer goes on with the first retransmission that
the link, up again, delivers, which may be long after the outage has ended.

- Two round trips and two ticks after the last acknowledgement, or after the first byte that follows it, a probe is sent
  (``tcp_schedule_loss_probe``). The first timeout is an RTT + 200 ms (``TCP_RTO_MIN``, with the variation of round
  trips) after the probe, with which the timer starts anew (``tcp_send_loss_probe``).
- Each further one is twice as long, at most 120 s (``TCP_RTO_MAX``). After 924.6 s the kernel gives up
  (``tcp_retries2`` = 15, ``tcp_model_timeout``).
- Timers count ticks. One of 63 ticks or more is late by up to 8, of 504 or more by up to 64, and so on: that much
  coarser are the levels of the kernel's timer wheel (``calc_index`` in kernel/time/timer.c). Here each is late by the
  mean.
"""

from dataclasses import dataclass
from typing import Final

from wanbed.runner.simulator.deadlock import SimulationError
from wanbed.runner.simulator.network.changing.changing_path import ChangingPath

_MOST_TIMEOUT_NS: Final = 120_000_000_000
_GIVES_UP_NS: Final = 924_600_000_000
_TICK_NS: Final = 10_000_000
"""The tick of a kernel's clock at 100 Hz, as in virtual time."""
_PROBE_TICKS: Final = 2
_LEVEL_TICKS: Final = 63
_LEVEL_BITS: Final = 3


def late_ticks(ticks: int) -> float:
    """Return by how many ticks a timer of that many is late on average."""
    granularity, most = 1, _LEVEL_TICKS
    while ticks >= most:
        granularity, most = granularity << _LEVEL_BITS, most << _LEVEL_BITS
    # A timer begins within a tick, and expires with the first step of its level that is later.
    return granularity / 2 if granularity == 1 else (granularity + 1) / 2


@dataclass(frozen=True)
class Retransmission:
    """The timers of a connection over ``path``. ``dilation`` is by how much time is dilated, which timers are not."""

    path: ChangingPath
    dilation: float = 1.0

    def mirrored(self) -> "Retransmission":
        """Return that of the other direction."""
        path = self.path
        return Retransmission(ChangingPath(path.back, path.there, path.port_bps, path.headers), self.dilation)

    def resumes_ns(self, first_ns: int, acknowledged_ns: int, timeout_ns: int, rtt_ns: int) -> int:
        """Return when the retransmission is sent that arrives, and whose acknowledgement does.

        ``first_ns`` is when the first byte left that is not acknowledged, ``acknowledged_ns`` when the last
        acknowledgement came. Raise SimulationError if the kernel gives up before.
        """
        tick_ns, path = _TICK_NS / self.dilation, self.path
        timeout_ticks = -int(-timeout_ns // tick_ns)
        ticks = min(-int(-2 * rtt_ns // tick_ns) + _PROBE_TICKS, timeout_ticks)
        begin_ns = at_ns = max(first_ns, acknowledged_ns) + round((ticks + late_ticks(ticks)) * tick_ns)
        ticks = timeout_ticks
        while not (path.is_up(at_ns) and path.back.at(at_ns + path.there.at(at_ns).latency_ns).up):
            if at_ns - begin_ns > _GIVES_UP_NS / self.dilation:
                raise SimulationError(
                    f"a link is down from {first_ns / 1e9:.3g} s on for longer than TCP sends again, "
                    f"{_GIVES_UP_NS / 1e9:g} s: its connections end, and training with them. Let the link come back"
                )
            at_ns += round((ticks + late_ticks(ticks)) * tick_ns)
            ticks = min(2 * ticks, int(_MOST_TIMEOUT_NS // _TICK_NS))
        return at_ns

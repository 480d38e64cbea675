"""Describe a host's TCP settings: window, congestion control, and slow start after idle."""

from dataclasses import dataclass

HELD_WINDOW_SHARE = 0.7
"""Fraction of a receive buffer that may be in flight, as in Linux 6.18 by itself: 0.69 to 0.71 measured at 6 MiB."""

VIRTUAL_WINDOW_SHARE = 0.49
"""The same in virtual time, as in its kernel, Linux 6.1, by itself: 0.492 measured at 6 MiB and 10 to 30 ms.

The kernel would give a smaller fraction of smaller buffers, 0.44 of 512 KiB and 0.33 of 64 KiB. So wanbed limits the
window in virtual time too.
"""

BUFFER_PER_WINDOW = 4
"""Bytes of a receive buffer for each byte of the window that a receiver holds: twice the payload in the kernel's own
accounting, so that unread bytes do not narrow the window."""

SELF_PACED = frozenset({"bbr"})
"""Congestion controls that define ``cong_control`` and so set their own pace."""


@dataclass(frozen=True)
class TcpSettings:
    """The TCP settings of a host, never inherited from the machine.

    ``window_bytes`` is the largest receive buffer (``tcp_rmem``'s maximum), which bounds the bytes in flight of one
    connection. The send buffer is twice as large, so that it never binds. The defaults, 6 MiB, cubic and slow start
    after idle, are those of a stock Linux host. ``window_share`` is the fraction of the buffer that may be in flight;
    the receiving programs enforce it.
    """

    window_bytes: int = 6 * 2**20
    congestion: str = "cubic"
    slow_start_after_idle: bool = True
    window_share: float = HELD_WINDOW_SHARE

    @property
    def in_flight_bytes(self) -> int:
        """The bytes that one connection may have in flight: ``window_share`` of the window, on every kernel.

        A kernel by itself varies by a few super-packets, because bytes that arrived in a burst and are not read yet
        take up the window.
        """
        return int(self.window_bytes * self.window_share)

    @property
    def restarts_after_idle(self) -> bool:
        """Whether a connection returns to slow start after a pause.

        Congestion controls that set their own pace ignore the sysctl (``tcp_slow_start_after_idle_check`` in Linux's
        net/ipv4/tcp.h): BBR goes on at the rate that it had found.
        """
        return self.slow_start_after_idle and self.congestion not in SELF_PACED

    @property
    def leaves_slow_start_early(self) -> bool:
        """Whether a connection may leave slow start early, by the pace of acknowledgements, as cubic's HyStart does."""
        return self.congestion == "cubic"

    def sysctls(self, *, makes_room: bool = False) -> dict[str, str]:
        """Return the settings as sysctls of a namespace.

        The kernel keeps no metrics of past connections, so that runs are repeatable. With ``makes_room`` every receive
        buffer has from the start the room in which a receiver can hold its window, for programs that may not ask for
        so much.
        """
        room_bytes = BUFFER_PER_WINDOW * self.in_flight_bytes
        receive = (room_bytes, room_bytes) if makes_room else (min(131072, self.window_bytes), self.window_bytes)
        return {
            "net.ipv4.tcp_rmem": "4096 {} {}".format(*receive),
            "net.ipv4.tcp_wmem": f"4096 {min(16384, self.window_bytes)} {2 * self.window_bytes}",
            "net.ipv4.tcp_congestion_control": self.congestion,
            "net.ipv4.tcp_slow_start_after_idle": str(int(self.slow_start_after_idle)),
            "net.ipv4.tcp_no_metrics_save": "1",
        }

"""Describe a host's TCP settings: window, congestion control, and slow start after idle."""

import math
from dataclasses import dataclass

DEFAULT_WINDOW_BYTES = 4300 * 1024
"""The bytes that Linux 6.18 by itself has in flight with a stock Debian's buffer of 6 MiB."""

KERNEL_WINDOW_SHARE = 0.7
"""Fraction of a receive buffer that Linux 6.18 has in flight by itself: 0.69 to 0.71 measured at 6 MiB.

It gives programs that leave their windows to the kernel. Linux 6.1, the kernel of virtual time, gives them 0.49 of
large buffers, and less of small ones.
"""

_PAGE_BYTES = 4096

BUFFER_PER_WINDOW = 4
"""Bytes of a buffer for each byte of the window that a receiver holds: twice the payload in the kernel's own
accounting, so that neither unread bytes nor the send buffer narrow the window."""

_SELF_PACED = frozenset({"bbr"})
"""Congestion controls that define ``cong_control`` and so set their own pace."""


@dataclass(frozen=True)
class TcpSettings:
    """The TCP settings of a host, never inherited from the machine.

    ``window_bytes`` is what one connection may have in flight. The receiving programs of this project see to it on
    every kernel; others get what their kernel makes of ``buffer_bytes``. The defaults, cubic and slow start after idle
    among them, are those of a stock Linux host. With ``keep_warm`` the programs themselves see to it that a connection
    is never idle for long.
    """

    window_bytes: int = DEFAULT_WINDOW_BYTES
    congestion: str = "cubic"
    slow_start_after_idle: bool = True
    keep_warm: bool = False

    @property
    def buffer_bytes(self) -> int:
        """The largest receive buffer (``tcp_rmem``'s maximum), of which a new kernel has the window in flight."""
        return math.ceil(self.window_bytes / KERNEL_WINDOW_SHARE / _PAGE_BYTES) * _PAGE_BYTES

    @property
    def restarts_after_idle(self) -> bool:
        """True if a connection returns to slow start after a pause.

        Congestion controls that set their own pace ignore the sysctl (``tcp_slow_start_after_idle_check`` in Linux's
        net/ipv4/tcp.h): BBR goes on at the rate that it had found.
        """
        return self.slow_start_after_idle and not self.keep_warm and self.congestion not in _SELF_PACED

    @property
    def leaves_slow_start_early(self) -> bool:
        """True if a connection may leave slow start early, by the pace of acknowledgements, as cubic's HyStart does."""
        return self.congestion == "cubic"

    def sysctls(self, *, makes_room: bool = False) -> dict[str, str]:
        """Return the settings as sysctls of a namespace.

        The kernel keeps no metrics of past connections, so that runs are repeatable. With ``makes_room`` every buffer
        has from the start the room that a held window takes, for programs that may not ask for so much.
        """
        room_bytes, buffer_bytes = BUFFER_PER_WINDOW * self.window_bytes, self.buffer_bytes
        room = (room_bytes, room_bytes)
        receive = room if makes_room else (min(131072, buffer_bytes), buffer_bytes)
        send = room if makes_room else (min(16384, buffer_bytes), 2 * buffer_bytes)
        return {
            "net.ipv4.tcp_rmem": "4096 {} {}".format(*receive),
            "net.ipv4.tcp_wmem": "4096 {} {}".format(*send),
            "net.ipv4.tcp_congestion_control": self.congestion,
            "net.ipv4.tcp_slow_start_after_idle": str(int(self.slow_start_after_idle)),
            "net.ipv4.tcp_no_metrics_save": "1",
        }

"""Describe the settings of a host's TCP: how much a connection may have in flight, and what a pause does to it."""

from dataclasses import dataclass

HELD_WINDOW_SHARE = 0.7
"""What of a receive buffer may be in flight: as much as Linux 6.18 gives by itself, 0.69 to 0.71 measured at 6 MiB."""

VIRTUAL_WINDOW_SHARE = 0.49
"""The same in virtual time: as much as its kernel, Linux 6.1, gives by itself, 0.492 measured at 6 MiB and 10 to 30 ms.

Of a smaller buffer it would give less, 0.44 of 512 KiB and 0.33 of 64 KiB, which is why the window is held here too.
"""

SELF_PACED = frozenset({"bbr"})
"""Congestion controls with a ``cong_control`` of their own."""


@dataclass(frozen=True)
class TcpSettings:
    """The settings of a host's TCP, never inherited from the machine.

    ``window_bytes`` is the largest receive buffer (``tcp_rmem``'s maximum), which bounds what one connection can have
    in flight; the send buffer is given twice as much, so that it is never what binds. 6 MiB, cubic and slow start
    after idle are what a stock Linux host has. ``window_share`` is the share of the buffer that may be in flight; the
    receiving programs hold connections to it.
    """

    window_bytes: int = 6 * 2**20
    congestion: str = "cubic"
    slow_start_after_idle: bool = True
    window_share: float = HELD_WINDOW_SHARE

    @property
    def in_flight_bytes(self) -> int:
        """The bytes that one connection may have in flight.

        It is the same share of the window whatever its size and the kernel's age. Left to itself a kernel gives a few
        super-packets less or more, and not always the same, since what has come in a burst and is not read yet takes
        the window's place.
        """
        return int(self.window_bytes * self.window_share)

    @property
    def restarts_after_idle(self) -> bool:
        """Whether a connection that paused starts slowly again.

        Linux leaves the effect of a pause to the congestion controls that set the pace themselves, whatever the sysctl
        is (``tcp_slow_start_after_idle_check`` in net/ipv4/tcp.h), and BBR goes on at the rate that it had found.
        """
        return self.slow_start_after_idle and self.congestion not in SELF_PACED

    @property
    def leaves_slow_start_early(self) -> bool:
        """Whether a connection leaves slow start by the pace of its acknowledgements, as cubic's HyStart does."""
        return self.congestion == "cubic"

    def sysctls(self) -> dict[str, str]:
        """Return the settings as sysctls of a namespace.

        Metrics of past connections are not kept, so that runs are alike.
        """
        return {
            "net.ipv4.tcp_rmem": f"4096 {min(131072, self.window_bytes)} {self.window_bytes}",
            "net.ipv4.tcp_wmem": f"4096 {min(16384, self.window_bytes)} {2 * self.window_bytes}",
            "net.ipv4.tcp_congestion_control": self.congestion,
            "net.ipv4.tcp_slow_start_after_idle": str(int(self.slow_start_after_idle)),
            "net.ipv4.tcp_no_metrics_save": "1",
        }

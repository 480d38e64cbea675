"""Select the effects of TCP that a simulation includes. ``transport: {model: ideal}`` includes none."""

from dataclasses import dataclass

from wanbed.runner.experiment.transport_spec import TransportSpec


@dataclass(frozen=True)
class TcpEffects:
    """The effects of TCP. Each can be switched off, so that closed forms hold exactly.

    ``window``: a connection has at most its window in flight. ``slow_start``: a connection begins with ten segments,
    and again after idle if the sysctl is set. ``headers``: Ethernet, IP and TCP headers take a share of the rate.
    ``impairments``: links lose and jitter packets as configured. ``packets``: the packets of each connection are
    followed in place of the connections' mean, where the transport asks for it; without another effect they are not.
    """

    window: bool = True
    slow_start: bool = True
    headers: bool = True
    impairments: bool = True
    packets: bool = True

    @property
    def follow_packets(self) -> bool:
        """Tell whether packets are followed: they have windows, slow starts and headers."""
        return self.packets and self.window and self.slow_start and self.headers


IDEAL = TcpEffects(window=False, slow_start=False, headers=False, impairments=False, packets=False)


def effects_of(transport: TransportSpec) -> TcpEffects:
    """Return the effects of TCP to simulate for a variant's transport."""
    return IDEAL if transport.model == "ideal" else TcpEffects()

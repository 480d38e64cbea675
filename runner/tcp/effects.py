"""Select TCP's effects that a simulation has; ``transport: {model: ideal}`` has none of them."""

from dataclasses import dataclass

from runner.experiment.model import TransportSpec


@dataclass(frozen=True)
class TcpEffects:
    """The effects of TCP, each of which can be switched off by itself, so that closed forms hold exactly.

    ``window``: a connection has no more in flight than its window; ``slow_start``: it begins with ten segments, and
    again after idle where the sysctl says so; ``headers``: frames, TCP and IP take their share of a rate.
    """

    window: bool = True
    slow_start: bool = True
    headers: bool = True


IDEAL = TcpEffects(window=False, slow_start=False, headers=False)


def effects_of(transport: TransportSpec) -> TcpEffects:
    """Return the effects of TCP that a variant's transport has."""
    return IDEAL if transport.model == "ideal" else TcpEffects()

"""Name the substrates, and say what a machine offers of one. It imports nothing of the kernel's."""

from dataclasses import dataclass

KERNEL, GUEST, RELAY = "kernel", "guest", "relay"
SUBSTRATES = (KERNEL, GUEST)
"""The substrates with netem."""


@dataclass(frozen=True)
class Offer:
    """One substrate: whether it works on this machine, why or why not, and what to install if it does not."""

    name: str
    available: bool
    reason: str
    install: str = ""

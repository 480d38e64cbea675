"""The configuration of a rank's rendezvous with its peers."""

from dataclasses import dataclass

from wanbed.workloads.transport.frames.frame import RUN_TOKEN_BYTES
from wanbed.workloads.transport.socket_options import PEER_TIMEOUT_S

DEFAULT_RENDEZVOUS_TIMEOUT_NS = 8_000_000_000


@dataclass(frozen=True)
class RendezvousConfig:
    """How one rank is connected to its peers. Durations are on the testbed's clock.

    - ``listen_address``, ``listen_port``: where peers call it. Every socket of the rank is bound to that address. The
      port must be below the kernel's ephemeral range.
    - ``run_token``: 16 bytes in hexadecimal, the same for all ranks of a trial.
    - ``congestion``: the congestion control of its connections, None for the kernel's.
    - ``timeout_ns``: the limit of the rendezvous.
    - ``peer_timeout_s``: for how long a peer may be silent before it is lost: longer than links are known to be down.

    Raises ValueError naming the field.
    """

    listen_address: str
    listen_port: int
    run_token: str
    congestion: str | None = None
    timeout_ns: int = DEFAULT_RENDEZVOUS_TIMEOUT_NS
    peer_timeout_s: int = PEER_TIMEOUT_S

    def __post_init__(self) -> None:
        for name, least in (("timeout_ns", 1), ("peer_timeout_s", PEER_TIMEOUT_S)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}: {getattr(self, name)} is below {least}")
        if not 1 <= self.listen_port <= 65535:
            raise ValueError(f"listen_port: {self.listen_port} is no port to listen on")
        try:
            token = bytes.fromhex(self.run_token)
        except ValueError:
            token = b""
        if len(token) != RUN_TOKEN_BYTES:
            raise ValueError(f"run_token: write {RUN_TOKEN_BYTES} bytes in hexadecimal")

"""The configurations of the two processes of a flow in the background."""

from dataclasses import dataclass
from pathlib import Path

from wanbed.ground.dataclass_json import write_config
from wanbed.workloads.background.offered_rate import OfferedRate
from wanbed.workloads.transport.socket_options import PEER_TIMEOUT_S


@dataclass(frozen=True)
class FlowEnd:
    """The part of a flow's configuration that both of its processes have.

    ``window_bytes`` is the window of each connection, ``connections`` how many there are; ``is_tcp`` says whether there
    are any: datagrams go over one socket. ``gate`` is the folder of the gate at which everybody waits for the start.
    A connection whose peer is silent for ``peer_timeout_s`` is lost.
    """

    name: str
    is_tcp: bool
    connections: int
    window_bytes: int
    address: str
    gate: str
    parent_pid: int | None
    peer_timeout_s: int = PEER_TIMEOUT_S


@dataclass(frozen=True)
class SenderConfig:
    """The sending process: it sends to ``peer_address`` and ``peer_port`` what ``offered`` says, in this clock's time.

    Of ``wire_bytes`` bytes on the wire ``payload_bytes`` are payload: those of a full frame.
    """

    end: FlowEnd
    peer_address: str
    peer_port: int
    congestion: str
    offered: OfferedRate
    payload_bytes: int
    wire_bytes: int

    def write(self, path: Path) -> None:
        """Write the configuration as JSON."""
        write_config(self, path)


@dataclass(frozen=True)
class ReceiverConfig:
    """The receiving process: it listens on ``port``, and writes to ``samples`` what had come every ``interval_ns``.

    Times there count from ``epoch_ns`` of this machine's monotonic clock.
    """

    end: FlowEnd
    port: int
    interval_ns: int
    epoch_ns: int
    samples: str

    def write(self, path: Path) -> None:
        """Write the configuration as JSON."""
        write_config(self, path)

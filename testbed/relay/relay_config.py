"""The configuration that is handed to the relay process at launch."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from wanbed.testbed.network.topology import Topology


@dataclass(frozen=True)
class RelayConfig:
    """``topology``, undilated, and the addresses of its hosts, by name.

    The relay's clock runs ``dilation`` times as slow as the machine's, so that TCP's timers are dilated too.
    Programs of a host bind ``own``. Programs of other hosts reach them at ``reached_at``, where the relay listens.
    """

    topology: Topology
    own: dict[str, str]
    reached_at: dict[str, str]
    dilation: float = 1.0

    def write(self, path: Path) -> None:
        """Write the configuration as JSON."""
        path.write_bytes(_ADAPTER.dump_json(self))

    @staticmethod
    def read(path: Path) -> "RelayConfig":
        """Read what ``write`` wrote."""
        return _ADAPTER.validate_json(path.read_bytes())


_ADAPTER = TypeAdapter(RelayConfig)

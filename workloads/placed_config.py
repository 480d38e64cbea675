"""The part of every rank's configuration that says where it stands."""

from dataclasses import dataclass
from pathlib import Path

from wanbed.ground.dataclass_json import write_config
from wanbed.results.records.span_log import RankPlace


@dataclass(frozen=True)
class PlacedConfig:
    """One rank of one trial, at its place."""

    place: RankPlace

    @property
    def rank(self) -> int:
        """The rank's number."""
        return self.place.rank

    @property
    def host(self) -> str:
        """The host that the rank runs on."""
        return self.place.host

    @property
    def gpu(self) -> int:
        """The GPU of that host that the rank computes on, counted from 0."""
        return self.place.gpu

    def write(self, path: Path) -> None:
        """Write the configuration as JSON, readable only by this user."""
        write_config(self, path)

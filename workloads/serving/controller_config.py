"""The configuration file of one datacenter's prefill controller."""

from dataclasses import dataclass
from pathlib import Path

from wanbed.ground.dataclass_json import write_config
from wanbed.workloads.prefill.service_config import DatacenterService, ServiceConfig
from wanbed.workloads.serving.serving_configs import Endpoint


@dataclass(frozen=True)
class ControllerConfig:
    """The configuration of the process that controls ``datacenter`` in ``service``.

    Times in ``service`` are those of the testbed's clock (dilated, if the run is). ``records`` is the path of the file
    that receives the outcome of each request; its times count from ``epoch_ns`` on CLOCK_MONOTONIC. Raises ValueError
    if the service does not have this datacenter.
    """

    service: ServiceConfig
    datacenter: str
    listen: Endpoint
    run_token: str
    epoch_ns: int
    records: str
    parent_pid: int | None = None

    def __post_init__(self) -> None:
        if self.datacenter not in [datacenter.name for datacenter in self.service.datacenters]:
            raise ValueError(f"datacenter: the service has none called {self.datacenter!r}")

    @property
    def own(self) -> DatacenterService:
        """The service of the controlled datacenter."""
        return next(datacenter for datacenter in self.service.datacenters if datacenter.name == self.datacenter)

    def write(self, path: Path) -> None:
        """Write the configuration as JSON, readable only by this user because it contains the run's token."""
        write_config(self, path)

"""The plan of the controller of one datacenter's prefill, as a file."""

from dataclasses import dataclass
from pathlib import Path

from workloads.plan_file import write_plan
from workloads.prefill.service_config import DatacenterService, ServiceConfig
from workloads.serving.serving_configs import Endpoint


@dataclass(frozen=True)
class ControllerConfig:
    """The plan of the process that controls ``datacenter`` in ``service``.

    ``service`` is on the testbed's clock (dilated, where the run is). ``epoch_ns`` is the CLOCK_MONOTONIC time that is
    0 in ``records``, the file that receives the outcome of each request. Raises ValueError for a datacenter that the
    service does not have.
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
        """The datacenter that it controls."""
        return next(datacenter for datacenter in self.service.datacenters if datacenter.name == self.datacenter)

    def write(self, path: Path) -> None:
        """Write the plan as JSON, readable by this user alone because of the token."""
        write_plan(self, path)

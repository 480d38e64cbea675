"""List the samplers of a trial. The first one starts first and ends last."""

from typing import Any

from runner.emulation.telemetry.gpu_sampler import GpuSampler
from runner.emulation.telemetry.link_sampler import LinkSampler
from runner.emulation.telemetry.load_sampler import LoadSampler
from runner.emulation.telemetry.machines_load_sampler import MachinesLoadSampler
from runner.emulation.telemetry.rdma_sampler import RdmaSampler
from runner.emulation.telemetry.sampling import Sampler
from runner.emulation.telemetry.tcp_sampler import TcpSampler

SAMPLERS: tuple[type[Sampler[Any]], ...] = (
    RdmaSampler,
    TcpSampler,
    LinkSampler,
    GpuSampler,
    LoadSampler,
    MachinesLoadSampler,
)

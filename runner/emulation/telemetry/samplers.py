"""List the samplers of a trial. The first one starts first and ends last."""

from typing import Any

from wanbed.runner.emulation.telemetry.gpu_sampler import GpuSampler
from wanbed.runner.emulation.telemetry.link_sampler import LinkSampler
from wanbed.runner.emulation.telemetry.load_sampler import LoadSampler
from wanbed.runner.emulation.telemetry.rdma_sampler import RdmaSampler
from wanbed.runner.emulation.telemetry.sampling import Sampler
from wanbed.runner.emulation.telemetry.tcp_sampler import TcpSampler

SAMPLERS: tuple[type[Sampler[Any]], ...] = (
    RdmaSampler,
    TcpSampler,
    LinkSampler,
    GpuSampler,
    LoadSampler,
)

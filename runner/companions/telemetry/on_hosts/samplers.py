"""List the samplers of a trial. The first one starts first and ends last."""

from typing import Any

from wanbed.runner.companions.telemetry.on_hosts.gpu_sampler import GpuSampler
from wanbed.runner.companions.telemetry.on_hosts.link_sampler import LinkSampler
from wanbed.runner.companions.telemetry.on_hosts.load_sampler import LoadSampler
from wanbed.runner.companions.telemetry.on_hosts.rdma_sampler import RdmaSampler
from wanbed.runner.companions.telemetry.on_hosts.sampling import Sampler
from wanbed.runner.companions.telemetry.on_hosts.tcp_sampler import TcpSampler

SAMPLERS: tuple[type[Sampler[Any]], ...] = (
    RdmaSampler,
    TcpSampler,
    LinkSampler,
    GpuSampler,
    LoadSampler,
)

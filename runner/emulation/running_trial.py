"""A trial on hosts: all that it needs, and what its training has left."""

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wanbed.results.records.span_log import SpanLogContents
from wanbed.results.records.trial_id import TrialId
from wanbed.runner.emulation.gpu_provisioning import resolved_device
from wanbed.runner.emulation.rank_configs import RankPatience, SharedConfig, peer_timeout_s
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.testbed.kernel.inside import in_virtual_time
from wanbed.testbed.rack.driver.machine_clock import TimeLine
from wanbed.testbed.running_testbed import RunningTestbed
from wanbed.testbed.virtual_time.repeatability import wait_for_whole_second


@dataclass(frozen=True)
class TrialSpec:
    """All that is needed to run the trial ``id``, which is one of ``point``, on an emulated network.

    ``connections`` is the number of TCP connections by node pair. ``gradients`` is a folder that receives the summed
    gradients of torch's last iteration, one file a rank; None keeps nothing. ``failed`` is a folder that is made of
    what a user's program printed, if it fails; None keeps nothing. With ``keeps_going`` a failure of ranks that nothing
    planned is a result too.
    """

    id: TrialId
    point: SweepPoint
    dilation: float
    connections: Mapping[tuple[str, str], int]
    gradients: Path | None = None
    failed: Path | None = None
    keeps_going: bool = False

    @property
    def variant(self) -> ResolvedVariant:
        """The variant that runs, with the compute times of this repeat."""
        return self.point.variant(self.id.variant).in_repeat(self.id.repeat)

    @property
    def of_ranks(self) -> bool:
        """Tell whether ranks of ours train, and nothing else runs."""
        variant = self.variant
        own = isinstance(variant, PipelineVariant) and variant.follows_own_schedule
        return own and variant.service is None


@dataclass(frozen=True)
class RunningTrial:
    """A trial whose testbed is up, with the setting that all of its processes share."""

    testbed: RunningTestbed
    spec: TrialSpec
    setting: SharedConfig

    @property
    def point(self) -> SweepPoint:
        """The sweep point that the trial belongs to."""
        return self.spec.point

    @property
    def variant(self) -> ResolvedVariant:
        """The variant that trains."""
        return self.spec.variant


def begun_trial(testbed: RunningTestbed, spec: TrialSpec, folder: Path) -> RunningTrial:
    """Return a trial that begins now; its processes write to ``folder``."""
    if in_virtual_time():
        wait_for_whole_second()
    setting = SharedConfig(
        addresses=testbed.addresses,
        connections=spec.connections,
        dilation=spec.dilation,
        run_token=secrets.token_hex(16),
        epoch_ns=time.monotonic_ns(),
        folder=folder,
        parent_pid=testbed.module_parent,
        keep_gradients=spec.gradients is not None,
        device=resolved_device(spec.point, testbed.gpus),
        models_tcp=testbed.stacks.modelled,
        patience=RankPatience(testbed.starts_slowly, peer_timeout_s(testbed.topology)),
    )
    testbed.begin_trial(setting.epoch_ns)
    return RunningTrial(testbed, spec, setting)


@dataclass(frozen=True)
class Ended:
    """Everything that the processes of a training have left, with times as each has logged them.

    ``others`` are the logs of each job that trained at the same time. ``setting`` is that of the processes that ended
    last. Logs are not ``whole`` where ranks were killed. ``arrivals`` is whether a span ``receive`` begins when the
    message comes, as with ranks of ours. ``measured_ns`` are begin and end of the measured part, None for the whole
    trial. ``outputs`` are files of what was printed, by name. ``facts`` gives what else is known of the training, on
    the trial's time line.
    """

    logs: Sequence[SpanLogContents]
    setting: SharedConfig
    others: Sequence[Sequence[SpanLogContents]] = ()
    whole: bool = True
    arrivals: bool = True
    measured_ns: tuple[int, int] | None = None
    outputs: Mapping[str, Path] = field(default_factory=dict)
    facts: Callable[[TimeLine | None], Mapping[str, Any]] = lambda line: {}


@dataclass(frozen=True)
class Trained:
    """Everything that a training has left, on one time line and undilated: nanoseconds since the trial's start.

    ``line`` puts the times of a host on that time line, where hosts are on several machines. The other fields are
    those of ``Ended``; ``while_all_ran_ns`` is when the first of several jobs was done, None for a single one.
    """

    logs: Sequence[SpanLogContents]
    line: TimeLine | None = None
    whole: bool = True
    measured_ns: tuple[int, int] | None = None
    while_all_ran_ns: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

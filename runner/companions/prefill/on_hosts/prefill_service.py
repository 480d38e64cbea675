"""Run a prefill service beside a trial's ranks: start its processes before, and end all of them after."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Self

from wanbed.results.records.run_store import TrialPart
from wanbed.results.records.trial_tables import PREFILL_TABLE
from wanbed.runner.companions.prefill.on_hosts.prefill_measurement import measured_profile
from wanbed.runner.companions.prefill.on_hosts.serving_configs import configure_serving
from wanbed.runner.companions.prefill.on_hosts.serving_outcome import gather, pool_logs
from wanbed.runner.companions.prefill.resolution.prefill_forecast import planned_bubbles
from wanbed.runner.emulation.companion import Companion
from wanbed.runner.emulation.rank_configs import SharedConfig
from wanbed.runner.emulation.running_trial import RunningTrial, Trained
from wanbed.runner.resolve.dilation import undilated_log
from wanbed.runner.resolve.pipeline_variant import in_pipelines
from wanbed.testbed.hosts.process_group import ProcessGroup
from wanbed.workloads.prefill.prefill_profile import UNMEASURED
from wanbed.workloads.prefill.service_config import ServiceConfig

_GRACE_S = 15.0
"""Seconds for a process to write its records and to unload torch on few cores. After that it is killed."""


class PrefillService(Companion):
    """The prefill service of a trial. Training does not depend on its processes: one that fails is told of."""

    def __init__(self, trial: RunningTrial, service: ServiceConfig) -> None:
        self._trial = trial
        self._service = service
        # A plan is made with times of a profile, and torch takes its own.
        ahead = planned_bubbles(trial.point.topology, in_pipelines(trial.variant)) if service.inference is None else {}
        self._configs = configure_serving(service, trial.setting, ahead)
        self._faults: list[str] = []

    @classmethod
    def of(cls, trial: RunningTrial) -> Self | None:
        """Return the service of a trial, None if it has none. Its profile is measured now if none is named."""
        service, setting = trial.variant.service, trial.setting
        if service is None:
            return None
        if (work := service.inference) is not None:
            if setting.device is not None:
                work = replace(work, device=setting.device)
                service = replace(service, inference=work)
            if service.profile == UNMEASURED:
                profile = measured_profile(trial.testbed, service, work, setting.folder, setting.parent_pid)
                service = replace(service, profile=profile)
        return cls(trial, service)

    def joined(self, setting: SharedConfig) -> SharedConfig:
        """Return the setting with what ranks prefill."""
        return replace(setting, serving=self._configs.gpus)

    @contextmanager
    def during(self) -> Iterator[None]:
        """Run all processes but the ranks inside the block."""
        testbed, folder, processes = self._trial.testbed, self._trial.setting.folder, self._configs.processes
        with ProcessGroup() as group:
            for number, process in enumerate(processes):
                path = folder / f"serving-{number}.json"
                process.config.write(path)
                start = partial(testbed.start_module, process.host, process.program, [str(path)], gpu=process.gpu)
                group.start(start, folder / f"serving-{number}.words")
            yield
            group.terminate()
            group.wait_for_all(_GRACE_S)
            self._faults += [
                f"{process.name} {_failure(status, group.stderr_tail(number))}"
                for number, (process, status) in enumerate(zip(processes, group.statuses(), strict=True))
                if status != 0
            ]
        testbed.mirror(folder).take([path.name for path in self._configs.written])

    def left(self, trained: Trained) -> TrialPart:
        """Return the requests, figures and faults of the service, and the spans of GPUs that prefill alone."""
        dilation, line = self._trial.setting.dilation, trained.line
        outcome = gather(self._service, self._configs, dilation, self._faults, line)
        logs = [undilated_log(log, dilation) for log in pool_logs(self._configs, line)]
        return TrialPart({PREFILL_TABLE: outcome.requests}, {"prefill": outcome.facts}, logs)


def _failure(status: int | None, stderr_tail: str) -> str:
    last = f": {stderr_tail}" if stderr_tail else ""
    return f"did not end when terminated{last}" if status is None else f"ended with status {status}{last}"

"""Sample links, connections, GPUs and the machine beside a training."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Self

from wanbed.results.records.run_store import Rows, TrialPart
from wanbed.results.records.schema import LinkSample
from wanbed.results.records.span_log import SpanLogContents
from wanbed.results.records.trial_columns import TrialCounters
from wanbed.results.records.trial_tables import LINK_TABLE, TrialTable
from wanbed.runner.companions.telemetry.on_hosts.carried_bytes import carried_facts
from wanbed.runner.companions.telemetry.on_hosts.samplers import SAMPLERS
from wanbed.runner.companions.telemetry.on_hosts.sampling import Samples, sampling
from wanbed.runner.emulation.companion import Companion
from wanbed.runner.emulation.job_rows import rows_of_job
from wanbed.runner.emulation.running_trial import RunningTrial, Trained


class Telemetry(Companion):
    """All samplers of a trial."""

    def __init__(self, trial: RunningTrial) -> None:
        self._trial = trial
        self._samples = Samples()

    @classmethod
    def of(cls, trial: RunningTrial) -> Self:
        """Return the telemetry of a trial, which every trial has."""
        return cls(trial)

    @contextmanager
    def during(self) -> Iterator[None]:
        """Sample inside the block. Raise the errors of readings."""
        setting = self._trial.setting
        with sampling(SAMPLERS, self._trial.testbed, setting.epoch_ns, setting.dilation) as self._samples:
            yield

    def left(self, trained: Trained) -> TrialPart:
        """Return the readings, those of links and connections as far as they are the trial's own traffic."""
        samples = replace(self._samples, measured_ns=trained.measured_ns)
        tables = samples.tables
        # In virtual time nobody samples the machine's load.
        facts = {"machine_load": None, **samples.facts}
        # What was on its way to a rank that failed need not have crossed a link.
        if trained.whole:
            facts |= self._carried(trained.logs, tables)
        return TrialPart(self._own(tables), facts)

    def _own(self, tables: Mapping[TrialTable, Rows]) -> Mapping[TrialTable, Rows]:
        """Return the samples of the variant's own connections and node pairs, and of what ran in the background."""
        point, variant = self._trial.point, self._trial.variant
        if not (variant.beside or point.background):
            return tables
        hosts = {place.host.name for place in variant.placement.places}
        return rows_of_job(tables, hosts, point.topology, [flow.hosts for flow in point.background])

    def _carried(self, logs: Sequence[SpanLogContents], tables: Mapping[TrialTable, Rows]) -> Mapping[str, Any]:
        """Return what was sent between datacenters, and what the links carried of it."""
        homes = {host.name: host.datacenter for host in self._trial.point.topology.hosts}
        rows = tables.get(LINK_TABLE, ())
        assert not isinstance(rows, TrialCounters)
        return carried_facts(logs, homes, (LinkSample(*row) for row in rows))

"""Run the flows in the background of a trial: ready at a gate before training, sending from its begin, then ended."""

import json
import time
from collections.abc import Iterator, Sequence
from typing import Self

from wanbed.results.records.run_store import TrialPart
from wanbed.results.records.schema import BackgroundSample
from wanbed.results.records.trial_tables import BACKGROUND_TABLE
from wanbed.runner.emulation.process_companion import ProcessCompanion
from wanbed.runner.emulation.running_trial import RunningTrial, Trained
from wanbed.runner.resolve.dilation import dilated_ns
from wanbed.runner.resolve.resolved_variant import BackgroundFlow
from wanbed.runner.runs.faults import TrialError
from wanbed.testbed.network.ethernet import ETHERNET_HEADER_BYTES
from wanbed.testbed.network.goodput import TCP_OVERHEAD_BYTES, UDP_OVERHEAD_BYTES
from wanbed.testbed.network.topology import Host
from wanbed.testbed.running_testbed import RunningTestbed
from wanbed.workloads.background_flows.flow import FlowEnd, ReceiverConfig, SenderConfig

SENDER, RECEIVER = (f"wanbed.workloads.background_flows.{_side}_process" for _side in ("sender", "receiver"))

PORT = 9_000
"""Below the kernel's ephemeral ports, and those of ranks and of prefill."""

_INTERVAL_NS = 100_000_000

_PATIENCE_S = 60.0

_LOOK_S = 0.02


def use_tcp_of_flows(testbed: RunningTestbed, flows: Sequence[BackgroundFlow]) -> None:
    """Apply on the hosts of each flow its TCP settings, for connections opened from now on."""
    for flow in flows:
        testbed.use_tcp(flow.tcp, set(flow.hosts))


class BackgroundTraffic(ProcessCompanion):
    """The flows of a trial: connected before training, sending from its begin, gone after it.

    After it their queues are empty.
    """

    field = "background"

    def __init__(self, trial: RunningTrial) -> None:
        super().__init__(trial, groups=2)
        self._flows = trial.point.background
        self._senders, self._receivers = self.groups

    @classmethod
    def of(cls, trial: RunningTrial) -> Self | None:
        """Return the flows of a trial, None if it has the WAN for itself."""
        return cls(trial) if trial.point.background else None

    def hosts(self) -> list[str]:
        """Return the hosts of both ends of each flow."""
        return [host for flow in self._flows for host in flow.hosts]

    def start(self) -> None:
        """Start both processes of each flow."""
        for number, flow in enumerate(self._flows):
            port, mtu_bytes = PORT + number, self.testbed.mtu_bytes
            source, destination = (place.host for place in flow.ends)
            own, peer = (self._end_of(flow, host) for host in (source, destination))
            interval_ns = dilated_ns(_INTERVAL_NS, self.setting.dilation)
            samples = str(self.output(RECEIVER, number, ".samples"))
            receiver = ReceiverConfig(peer, port, interval_ns, self.setting.epoch_ns, samples)
            sender = SenderConfig(
                own,
                self.setting.addresses.address_from(destination, source),
                port,
                flow.transport.congestion,
                flow.offered.dilated(self.setting.dilation),
                mtu_bytes - (TCP_OVERHEAD_BYTES if flow.is_tcp else UDP_OVERHEAD_BYTES),
                mtu_bytes + ETHERNET_HEADER_BYTES,
            )
            self.run(RECEIVER, number, destination.name, receiver, self._receivers)
            self.run(SENDER, number, source.name, sender, self._senders)

    def _end_of(self, flow: BackgroundFlow, host: Host) -> FlowEnd:
        return FlowEnd(
            flow.name,
            flow.is_tcp,
            flow.connections,
            flow.tcp.window_bytes,
            self.setting.addresses.address(host),
            str(self.gate),
            self.setting.parent_pid,
            self.setting.patience.peer_timeout_s,
        )

    def end(self) -> None:
        """End the senders, and the receivers once all has arrived. Raise TrialError if one does not end well."""
        self.end_group(self._senders)
        # What waits in queues would be counted as the next trial's.
        _await_empty_queues(self.testbed, self._flows, self.setting.dilation)
        self.end_group(self._receivers)

    def left(self, trained: Trained) -> TrialPart:
        """Return what each flow has carried."""
        return TrialPart({BACKGROUND_TABLE: list(self._rows(trained))})

    def _rows(self, trained: Trained) -> Iterator[BackgroundSample]:
        """Yield what each flow's receiver has logged."""
        for number, flow in enumerate(self._flows):
            samples = self.output(RECEIVER, number, ".samples").read_text(encoding="utf-8")
            for time_ns, received in json.loads(samples):
                at_ns = self.trial_ns(trained, flow.hosts[1], time_ns)
                for connection, received_bytes in enumerate(received):
                    yield BackgroundSample(at_ns, flow.name, connection, *flow.hosts, received_bytes)


def _await_empty_queues(testbed: RunningTestbed, flows: Sequence[BackgroundFlow], dilation: float) -> None:
    """Wait until all that flows have sent has arrived. Raise TrialError if it takes too long."""
    pairs = {flow.hosts for flow in flows}
    deadline_s = time.monotonic() + _PATIENCE_S * dilation
    while any(port.pairs[pair].backlog_bytes for port in testbed.read_counters() for pair in pairs & port.pairs.keys()):
        if time.monotonic() >= deadline_s:
            raise TrialError(
                f"background: what it had sent waited in queues for more than {_PATIENCE_S:.0f} s: give flows a rate "
                "or a smaller window"
            )
        time.sleep(_LOOK_S * dilation)
    # What has left the last queue still has to reach its receiver.
    time.sleep(_LOOK_S * dilation)


COMPANION = BackgroundTraffic

"""Run the flows in the background of a trial: ready at a gate before training, sending from its begin, then ended."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

from wanbed.results.records.run_store import TrialPart
from wanbed.results.records.schema import BackgroundSample
from wanbed.results.records.trial_tables import BACKGROUND_TABLE
from wanbed.runner.emulation.companion import Companion
from wanbed.runner.emulation.rank_configs import SharedConfig
from wanbed.runner.emulation.running_trial import RunningTrial, Trained
from wanbed.runner.resolve.dilation import dilated_ns, undilated_ns
from wanbed.runner.resolve.resolved_variant import BackgroundFlow
from wanbed.runner.runs.faults import TrialError
from wanbed.testbed.hosts.process_group import ProcessGroup
from wanbed.testbed.hosts.start_gate import Gate
from wanbed.testbed.network.goodput import TCP_OVERHEAD_BYTES
from wanbed.testbed.network.shared_rate import ETHERNET_HEADER_BYTES
from wanbed.testbed.running_testbed import RunningTestbed
from wanbed.workloads.background_flows.flow import FlowEnd, ReceiverConfig, SenderConfig
from wanbed.workloads.start_gate import PIPES

_PATIENCE_S = 60.0

_GRACE_S = 10.0


def _await_at_gate(testbed: RunningTestbed, gate: Gate, groups: Sequence[ProcessGroup], field: str) -> None:
    """Wait until all processes have come to their gate. Raise TrialError if one ends, or it takes too long."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while True:
        gate.look()
        if gate.is_complete:
            return
        _check_running(testbed, groups, field)
        if time.monotonic() >= deadline_s:
            raise TrialError(f"{field}: its processes were not ready within {_PATIENCE_S:.0f} s")
        groups[-1].wait_for_any(1.0, or_readable=gate)


def _check_running(testbed: RunningTestbed, groups: Sequence[ProcessGroup], field: str) -> None:
    """Raise TrialError if a process has ended: then not what was asked for ran beside training."""
    for group in groups:
        if any(status is not None for status in group.statuses()):
            raise _first_fault(testbed, group, field)


def _end(testbed: RunningTestbed, group: ProcessGroup, field: str) -> None:
    """End all processes of a group. Raise TrialError if one does not end well."""
    group.terminate()
    group.wait_for_all(_GRACE_S)
    if any(status != 0 for status in group.statuses()):
        raise _first_fault(testbed, group, field)


def _first_fault(testbed: RunningTestbed, group: ProcessGroup, field: str) -> TrialError:
    """Return an error about the first process of a group that has failed, or else the first that has ended.

    Raise MachineLostError if a machine has gone, and the process with it.
    """
    testbed.check()
    statuses = group.statuses()
    number = next((each for each, status in enumerate(statuses) if status), 0)
    said = group.stderr_tail(number)
    how = "did not end" if statuses[number] is None else f"ended with status {statuses[number]}"
    return TrialError(said or f"{field}: process {number} {how}, and without a word")


SENDER, RECEIVER = (f"wanbed.workloads.background_flows.{_side}_process" for _side in ("sender", "receiver"))

PORT = 9_000
"""Below the kernel's ephemeral ports, and those of ranks and of prefill."""

_UDP_OVERHEAD_BYTES = 28
"""The bytes of the headers of IPv4 and UDP in a packet."""

_INTERVAL_NS = 100_000_000

_FIELD = "background"

_LOOK_S = 0.02


def use_tcp_of_flows(testbed: RunningTestbed, flows: Sequence[BackgroundFlow]) -> None:
    """Apply on the hosts of each flow its TCP settings, for connections opened from now on."""
    for flow in flows:
        testbed.use_tcp(flow.tcp, set(flow.hosts))


class BackgroundTraffic(Companion):
    """The flows of a trial: connected before training, sending from its begin, gone after it.

    After it their queues are empty.
    """

    def __init__(self, testbed: RunningTestbed, flows: Sequence[BackgroundFlow], setting: SharedConfig) -> None:
        self._testbed = testbed
        self._flows = flows
        self._setting = setting
        self._folder = setting.folder / "background"
        self._receivers, self._senders = ProcessGroup(), ProcessGroup()
        self._gate: Gate

    @classmethod
    def of(cls, trial: RunningTrial) -> Self | None:
        """Return the flows of a trial, None if it has the WAN for itself."""
        flows = trial.point.background
        return cls(trial.testbed, flows, trial.setting) if flows else None

    @contextmanager
    def during(self) -> Iterator[None]:
        """Run the processes of all flows inside the block.

        Raise TrialError, one line, if one cannot begin, or has ended before the block has: then not what was asked for
        shared the WAN with training. An error of the block comes first, and MachineLostError.
        """
        testbed, flows = self._testbed, self._flows
        self._folder.mkdir()
        hosts = [host for flow in flows for host in flow.hosts]
        gate = testbed.gate(self._folder / "gate", hosts, PIPES, opens_itself=False)
        with self._receivers, self._senders, gate as self._gate:
            launcher = _Launcher(testbed, self._setting, self._folder, self._receivers, self._senders)
            for number, flow in enumerate(flows):
                launcher.start(number, flow)
            _await_at_gate(testbed, self._gate, [self._receivers, self._senders], _FIELD)
            yield
            self.look()
            self.begin()
            _end(testbed, self._senders, _FIELD)
            # What waits in queues would be counted as the next trial's.
            _await_empty_queues(testbed, flows, self._setting.dilation)
            _end(testbed, self._receivers, _FIELD)

    def begin(self) -> None:
        """Let all flows begin to send, if they have not yet."""
        if not self._gate.is_open:
            self._gate.open()

    def look(self) -> None:
        """Raise TrialError if a flow has ended before the trial, whose training then shared the WAN with less."""
        _check_running(self._testbed, [self._senders, self._receivers], _FIELD)

    def left(self, trained: Trained) -> TrialPart:
        """Return what each flow has carried."""
        line = trained.line
        rows = [
            row
            for number, flow in enumerate(self._flows)
            for row in _rows(
                flow,
                _samples(self._folder, number),
                self._setting.dilation,
                (lambda time_ns: time_ns) if line is None else partial(line.trial_ns, flow.hosts[1]),
            )
        ]
        return TrialPart({BACKGROUND_TABLE: rows})


def _configuration(folder: Path, module: str, number: int) -> Path:
    return folder / f"{module.rpartition('.')[2]}-{number}.json"


def _samples(folder: Path, number: int) -> Path:
    # A machine of a rack sends back what is named as the configuration is.
    return _configuration(folder, RECEIVER, number).with_suffix(".samples")


@dataclass(frozen=True)
class _Launcher:
    """Starts the processes of flows, whose files are in ``folder``."""

    testbed: RunningTestbed
    setting: SharedConfig
    folder: Path
    receivers: ProcessGroup
    senders: ProcessGroup

    def start(self, number: int, flow: BackgroundFlow) -> None:
        """Start both processes of a flow."""
        setting, port, mtu_bytes = self.setting, PORT + number, self.testbed.mtu_bytes
        source, destination = (place.host for place in flow.ends)
        own, peer = (
            FlowEnd(
                flow.name,
                flow.is_tcp,
                flow.connections,
                flow.tcp.window_bytes,
                setting.addresses.address(host),
                str(self.folder / "gate"),
                setting.parent_pid,
                setting.peer_timeout_s,
            )
            for host in (source, destination)
        )
        interval_ns = dilated_ns(_INTERVAL_NS, setting.dilation)
        receiver = ReceiverConfig(peer, port, interval_ns, setting.epoch_ns, str(_samples(self.folder, number)))
        sender = SenderConfig(
            own,
            setting.addresses.address_from(destination, source),
            port,
            flow.transport.congestion,
            flow.offered.dilated(setting.dilation),
            mtu_bytes - (TCP_OVERHEAD_BYTES if flow.is_tcp else _UDP_OVERHEAD_BYTES),
            mtu_bytes + ETHERNET_HEADER_BYTES,
        )
        for group, host, module, config in (
            (self.receivers, destination, RECEIVER, receiver),
            (self.senders, source, SENDER, sender),
        ):
            path = _configuration(self.folder, module, number)
            config.write(path)
            start = partial(self.testbed.start_module, host.name, module, [str(path)])
            group.start(start, path.with_suffix(".words"))


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


def _rows(
    flow: BackgroundFlow, path: Path, dilation: float, trial_ns: Callable[[int], int]
) -> Iterator[BackgroundSample]:
    """Yield what a flow's receiver has logged; ``trial_ns`` puts its times on the trial's time line."""
    for time_ns, received in json.loads(path.read_text(encoding="utf-8")):
        at_ns = undilated_ns(max(trial_ns(time_ns), 0), dilation)
        for connection, received_bytes in enumerate(received):
            yield BackgroundSample(at_ns, flow.name, connection, *flow.hosts, received_bytes)

"""Run the flows in the background of a trial: ready before training, sending from its begin, ended with it."""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from results.records.jobs.background_columns import BackgroundSample
from runner.emulation.ranks.rank_configs import SharedConfig
from runner.emulation.ranks.start_gate import StartGate
from runner.resolve.dilation import dilated_ns, undilated_ns
from runner.resolve.jobs.background_flow import BackgroundFlow
from runner.runs.faults import TrialError
from testbed.hosts.process_group import ProcessGroup
from testbed.network.flow_model.line import FRAME_BYTES, PAYLOAD_BYTES
from testbed.network.shared_rate import MTU_BYTES
from testbed.running_testbed import RunningTestbed
from workloads.background.flow_configs import FlowEnd, ReceiverConfig, SenderConfig

SENDER, RECEIVER = (f"workloads.background.{end}_process" for end in ("sender", "receiver"))
PORT = 9_000
"""Below the kernel's ephemeral ports, and those of ranks and of prefill."""
DATAGRAM_BYTES = MTU_BYTES - 28
"""The payload of a datagram that fills a frame: IPv4 and UDP headers take 28 bytes."""
INTERVAL_NS = 100_000_000

_PATIENCE_S = 60.0
_GRACE_S = 10.0
_LOOK_S = 0.02


class BackgroundTraffic:
    """The flows of a trial. ``begin`` lets them send; ``rows`` are empty until their end."""

    def __init__(self) -> None:
        self.rows: Sequence[BackgroundSample] = ()
        self._gate: StartGate | None = None

    def begin(self) -> None:
        """Let all flows begin to send, if they have not yet."""
        if self._gate is not None and not self._gate.is_open:
            self._gate.open()

    def wait_at(self, gate: StartGate) -> None:
        """Have the flows begin by opening ``gate``."""
        self._gate = gate


def use_tcp_of_flows(testbed: RunningTestbed, flows: Sequence[BackgroundFlow]) -> None:
    """Apply on the hosts of each flow its TCP settings, for connections opened from now on."""
    for flow in flows:
        testbed.use_tcp(flow.tcp, set(flow.hosts))


@contextmanager
def background_traffic(
    testbed: RunningTestbed, flows: Sequence[BackgroundFlow], setting: SharedConfig
) -> Iterator[BackgroundTraffic]:
    """Run the processes of all flows inside the block, connected from its begin on. They are gone after it.

    After it their queues are empty. Raise TrialError, one line, if one cannot begin, or has ended before the block has:
    then not what was asked for shared the WAN with training. An error of the block comes first.
    """
    traffic = BackgroundTraffic()
    if not flows:
        yield traffic
        return
    folder = setting.folder / "background"
    folder.mkdir()
    # Nobody comes for the last one, so that the gate opens when training begins.
    gate = StartGate(folder / "gate", 2 * len(flows) + 1)
    with ProcessGroup() as receivers, ProcessGroup() as senders, gate:
        launcher = _Launcher(testbed, setting, folder, receivers, senders)
        for number, flow in enumerate(flows):
            launcher.start(number, flow)
        _await_all(gate, [receivers, senders])
        traffic.wait_at(gate)
        yield traffic
        for group in (senders, receivers):
            _check_running(group)
        traffic.begin()
        _end(senders)
        # What waits in queues would be counted as the next trial's.
        _await_empty_queues(testbed, flows, setting.dilation)
        _end(receivers)
    traffic.rows = [
        row for number, flow in enumerate(flows) for row in _rows(flow, _samples(folder, number), setting.dilation)
    ]


def _samples(folder: Path, number: int) -> Path:
    return folder / f"received-{number}.json"


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
        setting, port = self.setting, PORT + number
        source, destination = (place.host for place in flow.ends)
        own, peer = (
            FlowEnd(
                flow.name,
                flow.is_tcp,
                flow.connections,
                flow.tcp.in_flight_bytes,
                setting.addresses.address(host),
                str(self.folder / "gate"),
                setting.parent_pid,
                setting.peer_timeout_s,
            )
            for host in (source, destination)
        )
        interval_ns = dilated_ns(INTERVAL_NS, setting.dilation)
        receiver = ReceiverConfig(peer, port, interval_ns, setting.epoch_ns, str(_samples(self.folder, number)))
        sender = SenderConfig(
            own,
            setting.addresses.address_from(destination, source),
            port,
            flow.transport.congestion,
            flow.offered.dilated(setting.dilation),
            PAYLOAD_BYTES if flow.is_tcp else DATAGRAM_BYTES,
            FRAME_BYTES,
        )
        for group, host, module, config in (
            (self.receivers, destination, RECEIVER, receiver),
            (self.senders, source, SENDER, sender),
        ):
            path = self.folder / f"{module.rpartition('.')[2]}-{number}.json"
            config.write(path)
            start = partial(self.testbed.start_module, host.name, module, [str(path)])
            group.start(start, path.with_suffix(".words"))


def _await_all(gate: StartGate, groups: Sequence[ProcessGroup]) -> None:
    """Wait until all have come to the gate but the one for whom nobody comes."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while True:
        gate.look()
        if gate.missing <= 1:
            return
        for group in groups:
            _check_running(group)
        if time.monotonic() >= deadline_s:
            raise TrialError(f"background: its hosts were not connected within {_PATIENCE_S:.0f} s")
        groups[-1].wait_for_any(1.0, or_readable=gate)


def _end(group: ProcessGroup) -> None:
    """End all processes of a group. Raise TrialError if one does not end well."""
    group.terminate()
    group.wait_for_all(_GRACE_S)
    if any(status != 0 for status in group.statuses()):
        raise TrialError(_first_fault(group))


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


def _check_running(group: ProcessGroup) -> None:
    if any(status is not None for status in group.statuses()):
        raise TrialError(_first_fault(group))


def _first_fault(group: ProcessGroup) -> str:
    """Return a line about the first process of a group that has failed, or else the first that has ended."""
    statuses = group.statuses()
    number = next((each for each, status in enumerate(statuses) if status), 0)
    said = group.stderr_tail(number)
    return said or f"background: the process of flow {number} ended with status {statuses[number]} and without a word"


def _rows(flow: BackgroundFlow, path: Path, dilation: float) -> Iterator[BackgroundSample]:
    for time_ns, received in json.loads(path.read_text(encoding="utf-8")):
        at_ns = undilated_ns(max(time_ns, 0), dilation)
        for connection, received_bytes in enumerate(received):
            yield BackgroundSample(at_ns, flow.name, connection, *flow.hosts, received_bytes)

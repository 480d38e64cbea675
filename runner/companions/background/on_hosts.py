"""Run the flows in the background of a trial: ready before training, sending from its begin, ended with it."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from wanbed.results.records.jobs.background_columns import BackgroundSample
from wanbed.runner.companions.background.resolution.flow import BackgroundFlow
from wanbed.runner.emulation.ranks.rank_configs import SharedConfig
from wanbed.runner.resolve.dilation import dilated_ns, undilated_ns
from wanbed.runner.runs.faults import TrialError
from wanbed.testbed.hosts.process_group import ProcessGroup
from wanbed.testbed.hosts.start_gate import Gate
from wanbed.testbed.network.goodput import TCP_OVERHEAD_BYTES
from wanbed.testbed.network.shared_rate import ETHERNET_HEADER_BYTES
from wanbed.testbed.running_testbed import RunningTestbed
from wanbed.workloads.background.flow_configs import FlowEnd, ReceiverConfig, SenderConfig
from wanbed.workloads.start_gate import PIPES

SENDER, RECEIVER = (f"wanbed.workloads.background.{end}_process" for end in ("sender", "receiver"))
PORT = 9_000
"""Below the kernel's ephemeral ports, and those of ranks and of prefill."""
UDP_OVERHEAD_BYTES = 28
"""What the headers of IPv4 and UDP take of a packet."""
INTERVAL_NS = 100_000_000

_PATIENCE_S = 60.0
_GRACE_S = 10.0
_LOOK_S = 0.02


class BackgroundTraffic:
    """The flows of a trial. ``begin`` lets them send; ``rows`` are empty until their end.

    ``look`` raises TrialError if one has ended before the trial, whose training then shared the WAN with less.
    """

    def __init__(self, look: Callable[[], None] = lambda: None) -> None:
        self._look = look
        self.rows: Sequence[BackgroundSample] = ()
        self._gate: Gate | None = None

    def begin(self) -> None:
        """Let all flows begin to send, if they have not yet."""
        if self._gate is not None and not self._gate.is_open:
            self._gate.open()

    def looked_at(self, meanwhile: Callable[[], None]) -> Callable[[], None]:
        """Return a function that does ``meanwhile`` and looks whether all flows still run."""

        def look() -> None:
            meanwhile()
            self._look()

        return look

    def wait_at(self, gate: Gate) -> None:
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
    then not what was asked for shared the WAN with training. An error of the block comes first, and MachineLostError.
    """
    if not flows:
        yield BackgroundTraffic()
        return
    folder = setting.folder / "background"
    folder.mkdir()
    hosts = [host for flow in flows for host in flow.hosts]
    gate = testbed.gate(folder / "gate", hosts, PIPES, opens_itself=False)
    with ProcessGroup() as receivers, ProcessGroup() as senders, gate:
        launcher = _Launcher(testbed, setting, folder, receivers, senders)
        for number, flow in enumerate(flows):
            launcher.start(number, flow)
        _await_all(testbed, gate, [receivers, senders])

        def look() -> None:
            for group in (senders, receivers):
                _check_running(testbed, group)

        traffic = BackgroundTraffic(look)
        traffic.wait_at(gate)
        yield traffic
        look()
        traffic.begin()
        _end(testbed, senders)
        # What waits in queues would be counted as the next trial's.
        _await_empty_queues(testbed, flows, setting.dilation)
        _end(testbed, receivers)
    line = testbed.time_line()
    traffic.rows = [
        row
        for number, flow in enumerate(flows)
        for row in _rows(
            flow,
            _samples(folder, number),
            setting.dilation,
            (lambda time_ns: time_ns) if line is None else partial(line.trial_ns, flow.hosts[1]),
        )
    ]


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
        interval_ns = dilated_ns(INTERVAL_NS, setting.dilation)
        receiver = ReceiverConfig(peer, port, interval_ns, setting.epoch_ns, str(_samples(self.folder, number)))
        sender = SenderConfig(
            own,
            setting.addresses.address_from(destination, source),
            port,
            flow.transport.congestion,
            flow.offered.dilated(setting.dilation),
            mtu_bytes - (TCP_OVERHEAD_BYTES if flow.is_tcp else UDP_OVERHEAD_BYTES),
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


def _await_all(testbed: RunningTestbed, gate: Gate, groups: Sequence[ProcessGroup]) -> None:
    """Wait until all have come to the gate."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while True:
        gate.look()
        if gate.is_complete:
            return
        for group in groups:
            _check_running(testbed, group)
        if time.monotonic() >= deadline_s:
            raise TrialError(f"background: its hosts were not connected within {_PATIENCE_S:.0f} s")
        groups[-1].wait_for_any(1.0, or_readable=gate)


def _end(testbed: RunningTestbed, group: ProcessGroup) -> None:
    """End all processes of a group. Raise TrialError if one does not end well."""
    group.terminate()
    group.wait_for_all(_GRACE_S)
    if any(status != 0 for status in group.statuses()):
        raise _first_fault(testbed, group)


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


def _check_running(testbed: RunningTestbed, group: ProcessGroup) -> None:
    if any(status is not None for status in group.statuses()):
        raise _first_fault(testbed, group)


def _first_fault(testbed: RunningTestbed, group: ProcessGroup) -> TrialError:
    """Return an error about the first process of a group that has failed, or else the first that has ended.

    Raise MachineLostError if a machine has gone, and the process with it.
    """
    testbed.check()
    statuses = group.statuses()
    number = next((each for each, status in enumerate(statuses) if status), 0)
    said = group.stderr_tail(number)
    silent = f"background: the process of flow {number} ended with status {statuses[number]} and without a word"
    return TrialError(said or silent)


def _rows(
    flow: BackgroundFlow, path: Path, dilation: float, trial_ns: Callable[[int], int]
) -> Iterator[BackgroundSample]:
    """Yield what a flow's receiver has logged; ``trial_ns`` puts its times on the trial's time line."""
    for time_ns, received in json.loads(path.read_text(encoding="utf-8")):
        at_ns = undilated_ns(max(trial_ns(time_ns), 0), dilation)
        for connection, received_bytes in enumerate(received):
            yield BackgroundSample(at_ns, flow.name, connection, *flow.hosts, received_bytes)

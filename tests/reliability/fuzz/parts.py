"""Read an input as the parts of commands do whose inputs no user names: logs of ranks, the wire, a rack's list."""

import json
import shutil
import socket
from pathlib import Path
from typing import Any

from tests.reliability.fuzz.calls import called
from tests.reliability.fuzz.judgement import Ended
from tests.support.results.runs import flat, write_run
from tests.support.runner.small_experiment import parsed, small
from wanbed.ground.errors import InputError
from wanbed.results.records.run_store import RunStore, TrialRecord
from wanbed.results.records.span_log import read_span_log
from wanbed.results.records.trial_id import TrialId
from wanbed.runner.rack_runs.cluster import nodes_of
from wanbed.runner.rack_runs.placement import gateway_machines, place_hosts, unknown_labels
from wanbed.runner.runs.faults import DONE, TrialError
from wanbed.workloads.serving.frame_channel import FrameChannel
from wanbed.workloads.transport.frame import HEADER_BYTES, HELLO_BYTES, FrameError, decode_header, decode_hello

_MOST_SENT_BYTES = 1 << 17
"""The bytes that a socket takes before anybody reads."""


def read_rank_log(folder: Path) -> None:
    """Read the log of a rank, and keep the trial that it is of."""
    log = read_span_log(folder / "rank-0.spans")
    if not log.complete:
        raise TrialError("the log is cut off")
    store = RunStore.create(folder.parent / "runs", "made", {"variants": [{"name": "one"}]}, "c0ffee" * 8)
    store.write_trial(TrialRecord(TrialId(0, "one", 0), [log]))


def read_peer_frames(folder: Path) -> None:
    """Decode a hello and headers. A fault of a frame ends a rank in one line."""
    content = (folder / "frames").read_bytes()
    try:
        decode_hello(content[:HELLO_BYTES])
        for begin in range(HELLO_BYTES, len(content), HEADER_BYTES):
            decode_header(content[begin : begin + HEADER_BYTES])
    except FrameError as fault:
        raise InputError(str(fault)) from None


def read_service_frames(folder: Path) -> None:
    """Receive frames over a connection. A fault of a frame drops the client in one line."""
    one, other = socket.socketpair()
    with one, other:
        one.sendall((folder / "frames").read_bytes()[:_MOST_SENT_BYTES])
        one.close()
        channel = FrameChannel(other, keeps_payloads=True)
        try:
            channel.receive()
        except (FrameError, ConnectionResetError) as fault:
            raise InputError(str(fault)) from None


def place_on_rack(folder: Path) -> Ended:
    """Place hosts on the machines of a file, and print where they are. Ray itself takes care that names are texts."""
    written = json.loads((folder / "machines.json").read_text(encoding="ascii"))
    listed = [
        _as_ray_lists(number, machine) for number, machine in enumerate(written if isinstance(written, list) else [])
    ]
    topology = parsed(small()).points()[0].topology
    nodes = nodes_of(listed)
    lines = [*unknown_labels(topology, nodes), *gateway_machines(topology, nodes).values()]
    return Ended(DONE, "\n".join([*lines, *place_hosts(topology, nodes, hosts_per_machine=2).values()]))


def _as_ray_lists(number: int, machine: Any) -> dict[str, Any]:
    named = machine if isinstance(machine, dict) else {}
    labels = named.get("Labels")
    return {
        "NodeID": f"{number}",
        "Alive": True,
        "NodeManagerAddress": f"10.0.0.{number + 1}",
        "Resources": {"CPU": 8.0},
        **{name: str(named[name]) for name in ("NodeName", "NodeManagerHostname") if name in named},
        "Labels": {str(label): str(name) for label, name in labels.items()} if isinstance(labels, dict) else {},
    }


def show_names(folder: Path) -> Ended:
    """Write a run with the names of a file, and show it in every way."""
    names = json.loads((folder / "names.json").read_text(encoding="ascii"))
    runs, made = folder.parent / "runs", folder.parent / "made"
    runs.mkdir()
    try:
        variants = [str(each) for each in names["variants"]]
        times = {(latency, variant): flat(0.5) for latency in ("10ms", "40ms") for variant in variants}
        run = write_run(
            runs, times, host={"cpu": names["cpu"]}, name=names["experiment"], git={"revision": names["git"]}
        )
    except (KeyError, TypeError, ValueError, AttributeError) as fault:
        raise InputError(f"no names of a run: {type(fault).__name__}") from None
    shown = Path(shutil.copytree(run, folder.parent / "shown"))
    ends = [
        called(["report", str(shown), "--output", str(made.with_suffix(".html"))]),
        *(called(["report", str(shown), "--format", form]) for form in ("csv", "md", "json")),
        called(["trace", str(shown), "--output", str(made.with_suffix(".json"))]),
        called(["compare", str(shown), str(run), "--markdown", str(made.with_suffix(".md"))]),
        called(["runs", "--runs", str(runs)]),
    ]
    return Ended(
        max(each.status for each in ends),
        "\n".join(each.output for each in ends),
        "\n".join(each.errors for each in ends),
        next((each.fault for each in ends if each.fault is not None), None),
    )

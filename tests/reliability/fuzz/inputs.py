"""Write a small valid input of each kind into a folder."""

import json
import shutil
import socket
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from random import Random
from typing import Any

import yaml

import wanbed
from tests.support.results.runs import flat, write_run
from tests.support.runner.chakra_traces import all_reduce, computation, message, write_trace
from tests.support.runner.known_captures import both_ends, in_frames, pcap, pcapng, probe_arrivals
from tests.support.runner.known_links import KnownLink, known_log
from wanbed.results.chakra.node import NodeType
from wanbed.results.records.span_log import RankPlace, Span, SpanLog
from wanbed.runner.experiments.shipped_experiments import shipped_experiment
from wanbed.runner.learnt_links.csv_log import HEADER
from wanbed.runner.learnt_links.packet_log import LOST_NS, PacketLog
from wanbed.workloads.serving.frame_channel import FrameChannel
from wanbed.workloads.transport.frame import FrameHeader, FrameKind, Hello, credit

EXPERIMENT = "experiment.yaml"
_SHIPPED = ("first", "atlas-vs-baselines", "background", "bubbletea", "diloco", "latency-step", "outage", "two-jobs")
_TOPOLOGY: dict[str, Any] = {
    "datacenters": [{"name": "east", "hosts": 2, "serving_hosts": 1}, {"name": "west", "hosts": 2, "serving_hosts": 1}],
    "wan": {"latency": "20ms", "rate": "1Gbit"},
}
_COMPUTE = {"forward": "20ms", "backward": "40ms", "activation": "1MiB"}
_PREFILL = {"rate": "4/s", "model": "llama-8b", "slo": "10s"}


def _write(path: Path, document: Mapping[str, Any]) -> None:
    path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")


def experiments(folder: Path) -> None:
    """Write shipped experiments that use all sections together."""
    for name in _SHIPPED:
        found = shipped_experiment(name)
        assert found is not None
        (folder / f"{name}.yaml").write_bytes(found.path.read_bytes())


def wan_traces(folder: Path) -> None:
    """Write an experiment whose links follow traces, of all fields and of Mahimahi, and carry recorded traffic."""
    rows = [
        "t_s,latency,rate,node_pair_rate,jitter,loss,up",
        "# a comment",
        "0,20ms,1Gbit,100Mbit,1ms,0.1%,true",
        "1.5,30ms,500Mbit,unlimited,,,1",
        "2,,,,,,false",
        "3,20ms,1Gbit,100Mbit,0ms,0%,true",
    ]
    (folder / "link.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    (folder / "link.mahimahi").write_text("".join(f"{ms}\n" for ms in range(1, 300)), encoding="utf-8")
    (folder / "others.csv").write_text("t_s,rate\n0,100Mbit\n1,0bit\n2,50Mbit\n", encoding="utf-8")
    links = [
        {"between": ["east", "west"], "trace": "link.csv"},
        {"between": ["east", "north"], "trace": {"mahimahi": "link.mahimahi"}},
    ]
    datacenters = [{"name": name, "hosts": 1} for name in ("east", "west", "north")]
    flow = {"name": "others", "from": "north", "to": "west", "trace": "others.csv"}
    topology = {"datacenters": datacenters, "wan": _TOPOLOGY["wan"], "links": links}
    _write(folder / EXPERIMENT, {"topology": topology, "compute": _COMPUTE, "background": [flow]})


def _requests(folder: Path, name: str, lines: list[str], **prefill: Any) -> None:
    (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    _write(
        folder / EXPERIMENT,
        {
            "topology": _TOPOLOGY,
            "compute": _COMPUTE,
            "training": {"iterations": 8, "warmup": 4},
            "prefill": {"trace": name, "model": "llama-8b", "slo": "10s", **prefill},
        },
    )


def azure_requests(folder: Path) -> None:
    """Write an experiment with requests in Azure's CSV."""
    lines = [f"2023-11-16 18:17:{second:02}.9799600,{100 + second},10" for second in range(20)]
    _requests(folder, "requests.csv", ["TIMESTAMP,ContextTokens,GeneratedTokens", *lines])


def mooncake_requests(folder: Path) -> None:
    """Write an experiment with requests in Mooncake's JSONL."""
    lines = [
        json.dumps({"timestamp": tick * 3000, "input_length": 700 + tick, "output_length": 52, "hash_ids": [tick]})
        for tick in range(20)
    ]
    _requests(folder, "requests.jsonl", lines)


def other_requests(folder: Path) -> None:
    """Write an experiment with requests in columns that it names."""
    columns = {"arrival": "sent at", "prompt": "in", "output": "out", "unit": "ms"}
    lines = [f'"{row * 250}.5",{row},"a, b",9' for row in range(1, 20)]
    _requests(folder, "requests.csv", ["sent at,in,who,out", *lines], columns=columns, skip_bad_lines=False)


def _log() -> PacketLog:
    return known_log(KnownLink(), seconds=6.0)


def packet_log(folder: Path) -> None:
    """Write a log of packets as CSV."""
    log = _log()
    rows = [
        f"{send_ns / 1e9:.9f},{size_bytes},{'' if arrival_ns == LOST_NS else f'{arrival_ns / 1e9:.9f}'}"
        for send_ns, size_bytes, arrival_ns in zip(log.send_ns, log.size_bytes, log.arrival_ns, strict=True)
    ]
    (folder / "log.csv").write_text("\n".join([HEADER, *rows]) + "\n", encoding="utf-8")


def probe_capture(folder: Path) -> None:
    """Write the capture of a probe's receiving end."""
    pcapng(folder / "probe.pcapng", in_frames(probe_arrivals(_log())))


def captures_of_both_ends(folder: Path) -> None:
    """Write the captures of a flow at its sending and at its receiving end."""
    for name, packets in zip(("sent.pcap", "received.pcap"), both_ends(_log()), strict=True):
        pcap(folder / name, in_frames(packets))


def chakra_traces(folder: Path) -> None:
    """Write an experiment that replays a trace of two ranks."""
    ends = (0, 1)
    write_trace(
        folder / "trace",
        {
            0: [
                computation(1, 500, is_cpu_op=False),
                message(NodeType.COMM_SEND_NODE, 2, ends, 1 << 20, [1], tag=3),
                all_reduce(3, 1 << 20, [2]),
                computation(4, 900, [3]),
            ],
            1: [
                message(NodeType.COMM_RECV_NODE, 1, ends, 1 << 20, tag=3),
                computation(2, 700, [1]),
                all_reduce(3, 1 << 20, [2]),
            ],
        },
    )
    datacenters = [{"name": name, "hosts": 1} for name in ("east", "west")]
    topology = {"datacenters": datacenters, "wan": _TOPOLOGY["wan"]}
    _write(folder / EXPERIMENT, {"topology": topology, "compute": {"trace": "trace"}, "variants": [{"name": "replay"}]})


def compute_profiles(folder: Path) -> None:
    """Write an experiment whose sweep takes an estimated and a measured compute profile."""
    shipped = Path(str(files("wanbed.workloads.profiles")))
    for name in ("a100", "h200"):
        (folder / f"{name}.json").write_bytes((shipped / f"{name}.json").read_bytes())
    _write(
        folder / EXPERIMENT,
        {
            "topology": _TOPOLOGY,
            "model": "gpt-a",
            "compute": {"kind": "replay", "profile": "a100.json"},
            "sweep": {"compute.profile": ["a100.json", "h200.json"]},
        },
    )


def prefill_profiles(folder: Path) -> None:
    """Write an experiment whose requests are timed by a profile of its own."""
    shipped = Path(str(files("wanbed.workloads.bubbletea"))) / "profiles" / "a100.json"
    (folder / "profile.json").write_bytes(shipped.read_bytes())
    _write(
        folder / EXPERIMENT,
        {
            "topology": _TOPOLOGY,
            "compute": _COMPUTE,
            "training": {"iterations": 8, "warmup": 4},
            "prefill": {"rate": "4/s", "model": "llama-8b", "slo": "10s", "profile": "profile.json"},
        },
    )


def network_presets(folder: Path) -> None:
    """Write an experiment whose WAN is a preset of its own."""
    pairs = [
        {"between": ["east", "west"], "latency": "30ms", "rate": "1Gbit"},
        {"between": ["east", "north"], "node_pair_rate": "100Mbit"},
    ]
    preset = {
        "title": "three regions",
        "source": [{"figures": "latency", "origin": "measured", "licence": "CC0-1.0"}],
        "regions": ["east", "west", "north"],
        "default": {"latency": "50ms", "rate": "2Gbit", "jitter": "1ms", "loss": "0.1%"},
        "pairs": pairs,
    }
    _write(folder / "preset.yaml", preset)
    datacenters = [{"name": name, "hosts": 1} for name in ("east", "west", "north")]
    topology = {"datacenters": datacenters, "profile": "preset.yaml"}
    _write(folder / EXPERIMENT, {"topology": topology, "compute": _COMPUTE})


def simulated_run(folder: Path) -> None:
    """Write the run of a simulation with prefill, and the same run a second time."""
    _requests(folder, "requests.csv", [])
    document = yaml.safe_load((folder / EXPERIMENT).read_text(encoding="utf-8"))
    document["prefill"] |= {"trace": "poisson", "rate": "4/s"}
    document["variants"] = [{"name": "one", "schedule": "gpipe"}, {"name": "other", "schedule": "1f1b"}]
    _write(folder / EXPERIMENT, document)
    made = wanbed.simulate(folder / EXPERIMENT, runs=folder / "runs", jobs=1).path
    _as_two(folder, made)


def emulated_run(folder: Path) -> None:
    """Write the run of an emulation with calibrated links, and the same run a second time."""
    times = {(latency, variant): flat(0.5) for latency in ("10ms", "40ms") for variant in ("one", "other")}
    _as_two(folder, write_run(folder / "runs", times))


def _as_two(folder: Path, made: Path) -> None:
    shutil.copytree(made, folder / "other")
    made.rename(folder / "run")


def measured_run(folder: Path) -> None:
    """Write a run that says that it was emulated, and the experiment that takes its times from there."""
    variants = [{"name": "one", "schedule": "gpipe"}, {"name": "other", "schedule": "1f1b"}]
    document = {"topology": _TOPOLOGY, "compute": _COMPUTE, "variants": variants}
    _write(folder / EXPERIMENT, document)
    run = wanbed.simulate(folder / EXPERIMENT, runs=folder / "runs", jobs=1).path.rename(folder / "run")
    manifest = json.loads((run / "manifest.json").read_text(encoding="utf-8"))
    (run / "manifest.json").write_text(json.dumps({**manifest, "engine": "emulate"}), encoding="utf-8")


def span_log(folder: Path) -> None:
    """Write the log of a rank."""
    log = SpanLog(folder / "rank-0.spans", RankPlace(0, "east-0", "east", 0, 0, 0))
    for iteration in range(3):
        log.record(Span("forward", iteration, 0, iteration * 1000, iteration * 1000 + 400))
        log.record(
            Span("send", iteration, 0, iteration * 1000 + 400, iteration * 1000 + 800, 4096, "west-0", "activation")
        )
        log.record_loss(iteration, 2.5)
    log.complete()


def peer_frames(folder: Path) -> None:
    """Write what a rank sends its peer: a hello, then headers of frames."""
    chunk = FrameHeader(FrameKind.ACTIVATION, 0, 1, 2, 1 << 20, 0, 1 << 16)
    content = [Hello(bytes(16), 0, 0, 2).encode(), chunk.encode(), credit(FrameKind.GRADIENT, 3).encode()]
    (folder / "frames").write_bytes(b"".join(content))


def service_frames(folder: Path) -> None:
    """Write what a process of a prefill service sends another: a hello, and a frame with a payload."""
    one, other = socket.socketpair()
    with one, other:
        channel = FrameChannel(one, keeps_payloads=True)
        channel.send({"hello": "rank-0", "token": "secret"})
        channel.send({"chunk": 1, "of": 2}, memoryview(Random(1).randbytes(5000)))
        channel.flush()
        (folder / "frames").write_bytes(other.recv(1 << 16))


def rack_inventory(folder: Path) -> None:
    """Write what Ray lists of a rack: what whoever started each machine has named it, and the labels."""
    machines = [
        {"NodeName": f"rack{number}", "NodeManagerHostname": f"vm{number}", "Labels": {label: name}}
        for number, (label, name) in enumerate(
            [("wanbed.datacenter", "east"), ("wanbed.datacenter", "west"), ("wanbed.gateway", "east")]
        )
    ]
    (folder / "machines.json").write_text(json.dumps(machines), encoding="utf-8")


def names(folder: Path) -> None:
    """Write the names of a run."""
    written = {"experiment": "made", "variants": ["one", "other"], "cpu": "one", "git": "abc"}
    (folder / "names.json").write_text(json.dumps(written), encoding="utf-8")

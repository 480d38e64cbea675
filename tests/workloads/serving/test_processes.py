"""Ranks, a controller, a decode host and a pool as real processes over loopback.

Two stages train 24 iterations of about 90 ms; a layer of a chunk takes a third of a millisecond.
"""

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.support.until import until_within
from tests.support.workloads.changed import changed
from tests.support.workloads.loopback_ranks import (
    LOOPBACK,
    MILLISECOND_NS,
    PATIENCE_S,
    ROOT,
    connections_at,
    free_ports,
    make_configs,
    with_costs,
)
from wanbed.results.records.span_log import COMPUTE_KINDS, PREFILL, SpanLogContents, read_span_log
from wanbed.workloads.bubbletea.prefill_group import GroupGpus, SharedGpuMemory
from wanbed.workloads.bubbletea.prefill_profile import PrefillProfile
from wanbed.workloads.bubbletea.prefill_settings import FillPolicy, PrefillSettings
from wanbed.workloads.bubbletea.request_source import RequestSource, SourceKind, TokenCount
from wanbed.workloads.bubbletea.service_config import DatacenterService, ServiceConfig, ServingGpu
from wanbed.workloads.compute.replay import ReplayDurations
from wanbed.workloads.inference.inference_model import INFERENCE_MODELS
from wanbed.workloads.rank_config import RankConfig
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.serving.frame_channel import FrameChannel
from wanbed.workloads.serving.serving_configs import (
    ControllerConfig,
    DecodeConfig,
    Endpoint,
    GpuServingConfig,
    PoolGpuConfig,
    ServedStage,
    ServingPeers,
)

MODEL = INFERENCE_MODELS["llama-tiny"]
KV_TOKEN_BYTES, ACTIVATION_TOKEN_BYTES = 4096, 2048
Spawn = Callable[[str, Path], "subprocess.Popen[str]"]


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    started: list[subprocess.Popen[str]] = []

    def start(module: str, plan: Path) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", module, str(plan)]
        process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def ended(process: "subprocess.Popen[str]") -> tuple[int, str]:
    _, errors = process.communicate(timeout=PATIENCE_S)
    return process.returncode, errors


class Service:
    """The configurations of a service with one group of two GPUs: those of two ranks, or of a pool."""

    def __init__(self, folder: Path, policy: FillPolicy) -> None:
        self.folder = folder
        pooled = policy is FillPolicy.NONE
        settings = PrefillSettings(
            5 * 10**9, policy, chunk_tokens=100, warmup_iterations=2, switch_ns=MILLISECOND_NS, transfer_rate_bps=10**9
        )
        memory = SharedGpuMemory(80 * 10**9, 0)
        self.service = ServiceConfig(
            (
                DatacenterService(
                    "east",
                    (GroupGpus((0, 1), (memory, memory), pooled),),
                    (ServingGpu(0, "host-0", 0), ServingGpu(1, "host-1", 0)),
                    "host-2",
                    ("host-2",),
                    1,
                ),
            ),
            MODEL,
            PrefillProfile(0.0, 3_333.0, 0.0, "test", measured=False),
            settings,
            RequestSource("poisson", SourceKind.POISSON, 20.0, seed=1, prompt=TokenCount(150, 1.5)),
            2,
            KV_TOKEN_BYTES,
            ACTIVATION_TOKEN_BYTES,
        )
        controller, decode, *gpus = (
            Endpoint(f"host-{number}", LOOPBACK, port) for number, port in enumerate(free_ports(4))
        )
        self.ranks = make_configs(
            folder,
            PipelineShape(2, 4),
            iterations=24,
        )
        self.token = self.ranks[0].rendezvous.run_token
        epoch_ns = self.ranks[0].process.epoch_ns
        self.gpus = [
            GpuServingConfig(
                gpu=gpu,
                pooled=pooled,
                served=ServedStage(MODEL, 2, gpu, KV_TOKEN_BYTES, ACTIVATION_TOKEN_BYTES),
                peers=ServingPeers(gpus[gpu], controller, (decode,), gpus[1] if gpu == 0 else None, 1),
                profile=self.service.profile,
                settings=settings,
                counts=str(folder / f"gpu-{gpu}.json"),
                epoch_ns=epoch_ns,
            )
            for gpu in (0, 1)
        ]
        ControllerConfig(self.service, "east", controller, self.token, epoch_ns, str(folder / "records.json")).write(
            folder / "controller.json"
        )
        DecodeConfig(decode, controller, self.token, str(folder / "decode-counts.json")).write(folder / "decode.json")

    def serving_ranks(self) -> list[RankConfig]:
        plans = []
        for rank, serving in zip(self.ranks, self.gpus, strict=True):
            durations = ReplayDurations(5 * MILLISECOND_NS, 10 * MILLISECOND_NS)
            plan = replace(with_costs(rank, durations=durations), serving=serving)
            plan.write(self.folder / f"rank-{rank.rank}.json")
            plans.append(plan)
        return plans

    def start_servers(self, spawn: Spawn) -> list["subprocess.Popen[str]"]:
        return [
            spawn(f"wanbed.workloads.serving.{name}_process", self.folder / f"{name}.json")
            for name in ("controller", "decode")
        ]

    def start_ranks(self, spawn: Spawn) -> list["subprocess.Popen[str]"]:
        return [spawn("wanbed.workloads.rank", self.folder / f"rank-{plan.rank}.json") for plan in self.serving_ranks()]

    def read(self, name: str) -> Any:
        return json.loads((self.folder / name).read_text())

    def logs(self) -> list[SpanLogContents]:
        return [read_span_log(Path(plan.process.span_log)) for plan in self.ranks]


until = partial(until_within, PATIENCE_S)


def prefill_ns(log: SpanLogContents) -> int:
    return sum(span.end_ns - span.start_ns for span in log.spans if span.kind == PREFILL)


@pytest.mark.parametrize("policy", [FillPolicy.PLANNED, FillPolicy.GREEDY])
def test_requests_are_prefilled_in_the_gaps_of_training_and_move_to_the_decode_host(
    tmp_path: Path, spawn: Spawn, policy: FillPolicy
) -> None:
    service = Service(tmp_path, policy)
    servers = service.start_servers(spawn)
    assert [ended(rank) for rank in service.start_ranks(spawn)] == [(0, "")] * 2
    assert [ended(server) for server in servers] == [(0, "")] * 2

    records = service.read("records.json")["requests"]
    moved = [record for record in records if record["kv_moved_ns"] is not None]
    assert len(moved) >= 5
    counts = [service.read(f"gpu-{gpu}.json") for gpu in (0, 1)]
    assert all(count["fault"] == "" for count in counts)
    received_bytes = service.read("decode-counts.json")["kv_bytes"]
    assert service.read("decode-counts.json")["requests"] >= len(moved)
    assert sum(record["prompt_tokens"] for record in moved) * KV_TOKEN_BYTES <= received_bytes
    assert received_bytes <= sum(count["kv_bytes"] for count in counts)
    for record in moved:
        times = [record[f"{name}_ns"] for name in ("arrival", "admitted", "started", "prefilled", "kv_moved")]
        assert times == sorted(times)

    for log in service.logs():
        assert log.complete
        used = sorted((span.start_ns, span.end_ns) for span in log.spans if span.kind in {*COMPUTE_KINDS, PREFILL})
        assert all(end_ns <= start_ns for (_, end_ns), (start_ns, _) in pairwise(used))
        layers = MODEL.layers // 2
        least_ns = layers * sum(service.service.profile.chunk_ns(1, record["prompt_tokens"], 0) for record in moved)
        assert prefill_ns(log) >= least_ns
        named = {span.request for span in log.spans if span.kind == PREFILL}
        assert {record["number"] for record in moved} <= named <= {record["number"] for record in records}


def test_training_goes_on_when_the_controller_is_killed(tmp_path: Path, spawn: Spawn) -> None:
    service = Service(tmp_path, FillPolicy.GREEDY)
    controller, decode = service.start_servers(spawn)
    ranks = service.start_ranks(spawn)
    until(lambda: connections_at(service.gpus[0].peers.controller.port) == len(ranks) + 1)
    # All processes are connected once a request has been prefilled.
    until(lambda: any(prefill_ns(log) for log in service.logs()))
    controller.kill()
    for status, errors in map(ended, ranks):
        assert status == 0
        assert "prefill has ended: the controller on host-0 has gone" in errors
    assert ended(decode) == (0, "")
    assert all("has gone" in service.read(f"gpu-{gpu}.json")["fault"] for gpu in (0, 1))
    for log in service.logs():
        assert log.complete
        assert {span.iteration for span in log.spans} == set(range(24))


def test_training_does_not_wait_for_a_service_that_never_starts(tmp_path: Path, spawn: Spawn) -> None:
    service = Service(tmp_path, FillPolicy.PLANNED)
    service.gpus = [changed(gpu, rendezvous_timeout_ns=1) for gpu in service.gpus]
    for status, errors in map(ended, service.start_ranks(spawn)):
        assert status == 0
        assert "no connection to host-0" in errors
    assert all(log.complete for log in service.logs())


def test_a_pool_serves_until_sigterm_and_none_is_missed_that_ends_before_another(tmp_path: Path, spawn: Spawn) -> None:
    service = Service(tmp_path, FillPolicy.NONE)
    pool = []
    for gpu in service.gpus:
        path = tmp_path / f"pool-{gpu.gpu}.json"
        log = str(tmp_path / f"pool-{gpu.gpu}.spans")
        PoolGpuConfig(gpu, f"host-{gpu.gpu}", "east", 0, service.token, log).write(path)
        pool.append(spawn("wanbed.workloads.serving.pool_process", path))
    controller, decode = service.start_servers(spawn)
    until(lambda: connections_at(service.gpus[0].peers.controller.port) == len(pool) + 1)
    # Before its end nothing is written. Forty requests come meanwhile.
    time.sleep(2)
    # Receivers end first, as the rank of a last stage does, and their senders still have data for them.
    for process in (pool[1], decode, pool[0], controller):
        process.send_signal(signal.SIGTERM)
        assert ended(process) == (0, "")
    moved = [record for record in service.read("records.json")["requests"] if record["kv_moved_ns"] is not None]
    assert len(moved) >= 5
    assert {record["outcome"] for record in moved} == {"off_loaded"}
    for number in (0, 1):
        contents = read_span_log(tmp_path / f"pool-{number}.spans")
        assert contents.complete
        assert {span.kind for span in contents.spans} == {PREFILL}


def test_a_caller_without_the_token_is_dropped(tmp_path: Path, spawn: Spawn) -> None:
    service = Service(tmp_path, FillPolicy.PLANNED)
    controller, _ = service.start_servers(spawn)
    end = service.gpus[0].peers.controller
    with socket.socket() as stranger:
        until(lambda: stranger.connect_ex((end.address, end.port)) == 0)
        channel = FrameChannel(stranger)
        channel.send({"message": "Hello", "token": "0" * 32, "gpu": 0})
        channel.flush()
        stranger.settimeout(PATIENCE_S)
        assert stranger.recv(1) == b""
    controller.terminate()
    status, errors = ended(controller)
    assert status == 0
    assert "dropped the client 127.0.0.1: it belongs to another run" in errors
    assert service.token not in errors

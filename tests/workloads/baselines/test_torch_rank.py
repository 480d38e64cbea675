"""torch ranks train as one process would, and end together when one of them is lost."""

import signal
import subprocess
import sys
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from tests.support.workloads.reference_training import relative_error, train_reference
from tests.workloads.baselines.torch_world import CONFIG, ITERATIONS, LOOPBACK, ROOT, StartWorld, World
from wanbed.workloads.compute.device_settings import DeviceSettings

TOLERANCE = 1e-5
SPANS = {
    "torch-gpipe": ("forward", "backward"),
    "torch-1f1b": ("forward", "backward"),
    "torch-zb": ("forward", "backward_input", "backward_weight"),
    "torch-ddp": ("forward", "backward"),
}


def gradients_of(world: World, pipeline: int) -> dict[str, np.ndarray]:
    parts = [dict(np.load(plan.kept.gradients)) for plan in world.plans if plan.place.pipeline == pipeline]
    merged = {name: gradient for part in parts for name, gradient in part.items()}
    assert len(merged) == sum(len(part) for part in parts), "two stages share a parameter's name"
    return merged


@pytest.mark.parametrize(
    ("schedule", "stages", "pipelines", "device"),
    [
        ("torch-gpipe", 2, 1, "cpu"),
        ("torch-1f1b", 2, 1, "cpu"),
        ("torch-zb", 2, 2, "cpu"),
        ("torch-ddp", 1, 2, "cpu"),
        pytest.param("torch-gpipe", 2, 2, "cuda", marks=pytest.mark.soak),
        pytest.param("torch-1f1b", 3, 1, "cuda", marks=pytest.mark.soak),
        ("torch-zb", 3, 1, "cuda"),
        ("torch-ddp", 1, 2, "cuda"),
    ],
)
def test_losses_and_gradients_are_those_of_single_process_training(
    start_world: StartWorld, schedule: str, stages: int, pipelines: int, device: str
) -> None:
    # Where the device is cuda, the CPU plays a GPU.
    world = start_world(schedule, stages, pipelines, device=DeviceSettings(device))
    reference = train_reference(
        CONFIG, pipelines=pipelines, microbatches=4, iterations=ITERATIONS, seed=3, learning_rate=1e-3
    )
    assert [world.outcome(plan.place.rank) for plan in world.plans] == [(0, "")] * (stages * pipelines)
    logs = [world.log(plan.place.rank) for plan in world.plans]
    last = [plan.place.stage == stages - 1 for plan in world.plans]
    of_replicas = [dict(log.losses) for log, is_last in zip(logs, last, strict=True) if is_last]
    assert [bool(log.losses) for log in logs] == last
    losses = [sum(own[iteration] for own in of_replicas) / len(of_replicas) for iteration in range(ITERATIONS)]
    np.testing.assert_allclose(losses, reference.losses, rtol=TOLERANCE)
    for pipeline in range(pipelines):
        assert relative_error(gradients_of(world, pipeline), reference.gradients) <= TOLERANCE
    for log in logs:
        assert log.complete
        assert Counter((span.kind, span.iteration) for span in log.spans) == {
            **{(kind, iteration): 4 for kind in SPANS[schedule] for iteration in range(ITERATIONS)},
            **{("optimizer", iteration): 1 for iteration in range(ITERATIONS)},
        }
        assert all(one.start_ns <= one.end_ns <= other.start_ns for one, other in pairwise(log.spans))
        assert log.device is not None
        assert log.device.device == {"cpu": "cpu", "cuda": "GPU-hostile"}[device]


def test_what_stages_exchange_is_staged_and_counted(start_world: StartWorld) -> None:
    world = start_world("torch-1f1b", 2, 1, device=DeviceSettings("cuda"))
    assert [world.outcome(rank) for rank in (0, 1)] == [(0, "")] * 2
    first, last = (world.log(rank).device for rank in (0, 1))
    assert first is not None
    assert last is not None
    microbatches = 4
    message, tokens = CONFIG.context * CONFIG.hidden * 4, CONFIG.context * 8
    messages = ITERATIONS * microbatches * message
    assert (first.to_host_bytes, last.to_host_bytes) == (messages, messages)
    assert (first.to_device_bytes, last.to_device_bytes) == (messages + ITERATIONS * microbatches * tokens, messages)


@pytest.mark.parametrize(
    ("schedule", "stages", "pipelines", "victim"), [("torch-1f1b", 3, 1, 2), ("torch-ddp", 1, 2, 0)]
)
def test_when_a_rank_is_killed_every_other_fails_with_one_line(
    start_world: StartWorld, schedule: str, stages: int, pipelines: int, victim: int
) -> None:
    # Rank 1 of the pipeline as wanbed starts it.
    world = start_world(schedule, stages, pipelines, iterations=1_000_000, alone={1} if stages > 1 else ())
    world.await_first_iteration()
    world.processes[victim].kill()
    for rank in world.processes:
        if rank != victim:
            status, errors = world.outcome(rank)
            assert status == 1
            assert errors.startswith(f"wanbed torch rank {rank} (host-{rank}): ")
            assert errors.count("\n") == 1
            assert not world.log(rank).complete


def test_a_silent_store_server_is_named(start_world: StartWorld) -> None:
    # A stopped process keeps its connections open: to Gloo it is a slow one.
    world = start_world("torch-gpipe", 2, 1, iterations=1_000_000, silence_ns=3_000_000_000)
    world.await_first_iteration()
    world.processes[0].send_signal(signal.SIGSTOP)
    silence = "its rendezvous store has not answered for 3 s"
    assert world.outcome(1) == (1, f"wanbed torch rank 1 (host-1): rank 0 (host-0, {LOOPBACK}) is lost: {silence}\n")


def test_a_rank_that_is_not_started_is_reported(start_world: StartWorld) -> None:
    world = start_world("torch-ddp", 1, 2, absent={1}, rendezvous_timeout_ns=1_000_000_000)
    assert world.outcome(0) == (1, "wanbed torch rank 0 (host-0): no answer from rank 1 within 1 s\n")


def test_a_rank_that_finds_no_store_says_so(start_world: StartWorld) -> None:
    world = start_world("torch-ddp", 1, 2, absent={0}, alone={1}, rendezvous_timeout_ns=1_000_000_000)
    status, errors = world.outcome(1)
    assert status == 1
    assert errors.startswith("wanbed torch rank 1 (host-1): ")
    assert f"({LOOPBACK}, {world.plans[1].gloo.store_port})" in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"interface": "eth77"}, "interface: eth77 has no address here"),
        ({"epoch_ns": 2**62}, "epoch_ns: lies in the future"),
        ({"parent_pid": 1}, "its parent is not process 1"),
    ],
)
def test_an_invalid_config_fails_with_one_line(start_world: StartWorld, changes: dict[str, object], line: str) -> None:
    status, errors = start_world("torch-ddp", 1, 1, **changes).outcome(0)
    assert status == 1
    assert errors.startswith(f"wanbed torch rank 0 (host-0): {line}")
    assert errors.count("\n") == 1


@pytest.mark.parametrize("arguments", [[], ["/nowhere/plan.json"]])
def test_a_missing_config_fails_with_one_line(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "wanbed.workloads.baselines.torch_rank", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("wanbed torch rank: ")
    assert done.stderr.count("\n") == 1

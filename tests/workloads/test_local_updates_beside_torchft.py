"""Wanbed's DiLoCo beside torchft's: the same model, seed and data, and the same losses."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.workloads.loopback_ranks import LOOPBACK, ROOT, Start, free_ports
from tests.support.workloads.synchronized_ranks import train_synchronized
from wanbed.workloads.synchronization.synchronization import Synchronization

REPLICAS, SYNC_EVERY, SYNCHRONISATIONS, PATIENCE_S = 2, 2, 3, 120


@pytest.fixture
def lighthouse() -> Iterator[str]:
    (port,) = free_ports(1)
    program = Path(sys.executable).with_name("torchft_lighthouse")
    command = [program, "--min_replicas", str(REPLICAS), "--bind", f"{LOOPBACK}:{port}", "--join_timeout_ms", "1000"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        yield f"http://{LOOPBACK}:{port}"
        process.kill()


def by_torchft(lighthouse: str, iterations: int) -> list[float]:
    environment = {**os.environ, "TORCHFT_LIGHTHOUSE": lighthouse, "PYTHONPATH": str(ROOT)}
    arguments = [str(each) for each in (REPLICAS, iterations, SYNC_EVERY)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.workloads.torchft_replicas", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    losses = json.loads(done.stdout.splitlines()[-1])
    assert len(losses) == REPLICAS
    return [sum(each) / REPLICAS for each in zip(*losses, strict=True)]


@pytest.mark.skipif(find_spec("torchft") is None, reason="torchft is not installed; it has wheels for x86_64")
def test_both_have_the_same_losses(tmp_path: Path, start: Start, lighthouse: str) -> None:
    iterations = SYNC_EVERY * SYNCHRONISATIONS + 1
    own, _ = train_synchronized(tmp_path, start, Synchronization(SYNC_EVERY), iterations)
    assert own == pytest.approx(by_torchft(lighthouse, iterations), abs=1e-4)
    assert own[-1] < own[0]

"""Users' programs over a Ray cluster: what they are sent, what comes back, and what of them is left."""

import json
import os
import runpy
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.ray.ray_cluster import (
    RayCluster,
    two_nodes,  # noqa: F401 - a fixture
)
from wanbed.module_process import module_command
from wanbed.results import load

# The witness of a rack over Ray is test_rack_on_ray.py.
pytestmark = pytest.mark.soak

WIDTH, ROWS, ITERATIONS, RATE = 64, 8, 6, 0.1
MODEL = f"""
import torch

def model_and_batch(rank):
    torch.manual_seed(0)
    model = torch.nn.Linear({WIDTH}, {WIDTH})
    generator = torch.Generator().manual_seed(rank)
    return model, torch.randn({ROWS}, {WIDTH}, generator=generator)

def loss_of(model, batch):
    return (model(batch) ** 2).mean()
"""
DDP = f"""
import os, sys
import torch
from model import loss_of, model_and_batch
torch.distributed.init_process_group("gloo")
own, batch = model_and_batch(torch.distributed.get_rank())
model = torch.nn.parallel.DistributedDataParallel(own)
optimizer = torch.optim.SGD(model.parameters(), lr={RATE})
print("in", os.getcwd(), "with", sys.argv[1:], flush=True)
for _ in range({ITERATIONS}):
    optimizer.zero_grad()
    loss = loss_of(model, batch)
    loss.backward()
    optimizer.step()
    print(f"loss {{loss.item():.6f}}", flush=True)
"""
STEPS = "for step in range(4): print('step', step, flush=True); time.sleep(0.05)"
LEAVE = f"""
import os, subprocess, time, wanbed
subprocess.Popen(["setsid", "-f", "sleep", "4711"], env={{"PATH": os.environ["PATH"]}})
{STEPS.replace("print('step', step, flush=True)", "wanbed.mark_iteration()")}
"""
LOOK = f"""
import pathlib, time
commands = [path.read_bytes() for path in pathlib.Path("/proc").glob("[0-9]*/cmdline")]
assert not any(b"4711" in command for command in commands)
{STEPS}
"""
WRITE = f"""
import pathlib, sys, time
pathlib.Path("model").mkdir(exist_ok=True)
pathlib.Path("model/weights.bin").write_bytes(bytes(100_000))
pathlib.Path("log.txt").write_text("rank " + sys.argv[1])
pathlib.Path("new.txt").write_text("new")
pathlib.Path("link").symlink_to("/etc/passwd") if not pathlib.Path("link").is_symlink() else None
{STEPS}
"""
CRASH = f"""
import os, time
{STEPS}
if os.environ["RANK"] == "1": raise RuntimeError("my bug on " + os.uname().nodename)
time.sleep(60)
"""
TOPOLOGY = {
    # The machines may lack netem: nearly nothing is to be emulated.
    "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}],
    "wan": {"latency": "100us"},
}


def run_in(
    folder: Path, cluster: RayCluster, programs: Mapping[str, Mapping[str, Any]]
) -> "subprocess.CompletedProcess[str]":
    """Run an experiment of these programs from their folder, which the machines do not see."""
    variants = [{"name": name, "program": {"warmup": 1, **program}} for name, program in programs.items()]
    document = {"name": "mine", "topology": TOPOLOGY, "variants": variants, "engine": "rack"}
    hiding = [machine.inside("mount", "-t", "tmpfs", "tmpfs", str(folder)) for machine in cluster.machines.values()]
    for command in hiding:
        subprocess.run(command, check=True)
    try:
        return subprocess.run(
            [sys.executable, "-m", "tests.support.ray.unshaped_run", cluster.address, "runs", json.dumps(document)],
            cwd=folder,
            env={**os.environ, **cluster.environment},
            check=False,
            capture_output=True,
            text=True,
            timeout=240,
        )
    finally:
        for machine in cluster.machines.values():
            subprocess.run(machine.inside("umount", "-l", str(folder)), check=True)


def losses_of_both_ranks(model_file: Path) -> list[list[float]]:
    """What two ranks print that average their gradients, computed here by one process."""
    space = runpy.run_path(str(model_file))
    (model, _), batches = space["model_and_batch"](0), [space["model_and_batch"](rank)[1] for rank in range(2)]
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    losses: list[list[float]] = [[], []]
    for _ in range(ITERATIONS):
        optimizer.zero_grad()
        each = [space["loss_of"](model, batch) for batch in batches]
        (sum(each) / 2).backward()
        optimizer.step()
        for own, loss in zip(losses, each, strict=True):
            own.append(loss.item())
    return losses


def test_ddp_of_torchrun_trains_over_two_machines_with_the_files_that_they_are_sent(
    two_nodes: RayCluster,  # noqa: F811
    tmp_path: Path,
) -> None:
    (tmp_path / "train.py").write_text(DDP)
    (tmp_path / "model.py").write_text(MODEL)
    command = ["{python}", "train.py", str(tmp_path / "model.py")]
    program = {"command": command, "launcher": "torchrun", "iterations": ITERATIONS, "env": {"OMP_NUM_THREADS": "1"}}
    done = run_in(tmp_path, two_nodes, {"ddp": program})
    assert done.returncode == 0, done.stderr
    run = Path(tmp_path, done.stdout.splitlines()[-1])
    (trial,) = load(run).trials
    printed = [(path, path.read_text()) for path in sorted(run.glob("trials/**/rank-*.stdout"))]
    assert [path.name for path, _ in printed] == ["rank-0.stdout", "rank-1.stdout"]
    places = [text.splitlines()[0].split()[1] for _, text in printed]
    assert str(tmp_path) not in places
    # What the ranks learnt is what one process learns from both batches.
    losses = [[float(line.split()[1]) for line in text.splitlines() if line.startswith("loss")] for _, text in printed]
    for own, expected in zip(sorted(losses), sorted(losses_of_both_ranks(tmp_path / "model.py")), strict=True):
        assert own == pytest.approx(expected, abs=2e-6)
    # The last iteration was profiled: each rank all-reduced its gradients once, by 4 bytes a parameter.
    spans = load(run).spans
    reduced = spans[spans.kind == "all_reduce"]
    assert sorted(reduced.groupby("host", observed=True).size_bytes.sum()) == [4 * (WIDTH * WIDTH + WIDTH)] * 2
    assert {(each["rank"], each["host"]) for each in trial.facts["program"]["ranks"]} in (
        {(0, "east-0"), (1, "west-0")},
        {(1, "east-0"), (0, "west-0")},
    )
    assert trial.facts["clocks"].keys() == {"east", "west"}
    iterations = spans[spans.kind == "iteration"].groupby("iteration").end_ns
    # Both ranks end an iteration together, on one time line.
    assert (iterations.max() - iterations.min()).median() < 1e9


def test_a_daemon_is_gone_before_the_next_trial_and_a_crash_names_its_rank(
    two_nodes: RayCluster,  # noqa: F811
    tmp_path: Path,
) -> None:
    for name, code in (("leave.py", LEAVE), ("look.py", LOOK), ("crash.py", CRASH)):
        (tmp_path / name).write_text(code)
    steps = {"pattern": "step", "iterations": 4}
    done = run_in(
        tmp_path,
        two_nodes,
        {
            "leave": {"command": ["{python}", "leave.py"], "marked_by": "call", "profile": 0, "iterations": 4},
            "look": {"command": ["{python}", "look.py"], **steps},
            "crash": {"command": ["{python}", "crash.py"], **steps, "iterations": 90},
        },
    )
    assert done.returncode == 4, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("wanbed: ")]
    assert "rank 1 on west-0 ended with status 1: RuntimeError: my bug on west-0 (what it printed: " in line
    (run,) = (tmp_path / "runs").iterdir()
    assert [trial.variant for trial in load(run).trials] == ["leave", "look"]
    (failed,) = run.glob("failed/**/rank-1.stderr")
    assert "Traceback" in failed.read_text()
    assert (failed.parent / "rank-0.stdout").read_text().startswith("step 0\n")


def test_a_file_that_is_another_one_on_a_machine_is_named_before_the_run(
    two_nodes: RayCluster,  # noqa: F811
    tmp_path: Path,
) -> None:
    name = "/proc/sys/kernel/hostname"
    done = run_in(tmp_path, two_nodes, {"mine": {"command": ["cat", name], "pattern": "step", "iterations": 4}})
    assert done.returncode == 5, done.stderr
    assert done.stderr.splitlines() == [
        f"wanbed: machine east: variants.0.program.command: {name}: it is another file than on the machine that "
        "drives: put it there, or start wanbed in a folder that has it"
    ]
    assert not (tmp_path / "runs").exists()


def test_doctor_names_the_machines_that_lack_what_a_program_of_the_file_wants(
    two_nodes: RayCluster,  # noqa: F811
    tmp_path: Path,
) -> None:
    wants = {"command": ["{python}", "train.py"], "also": [{"host": "east-0", "command": ["no-such-program"]}]}
    variants = [{"name": "mine", "program": {**wants, "pattern": "step", "iterations": 4}}]
    (tmp_path / "mine.yaml").write_text(json.dumps({"topology": TOPOLOGY, "variants": variants}))
    done = subprocess.run(
        module_command("wanbed.runner.cli.command_line", "doctor", "mine.yaml", "--rack", two_nodes.address, "--json"),
        cwd=tmp_path,
        env={**os.environ, **two_nodes.environment},
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    (point,) = json.loads(done.stdout)["sweep_points"]
    assert not point["carried"]
    lacking = [line for line in point["reasons"] if ": variants.0.program." in line]
    assert [line.partition(":")[0] for line in lacking] == ["east", "west"]
    assert all("also.0.command: 'no-such-program': there is no such program on PATH" in line for line in lacking)


def test_what_a_program_writes_comes_back_with_the_trial_that_wrote_it(
    two_nodes: RayCluster,  # noqa: F811
    tmp_path: Path,
) -> None:
    (tmp_path / "write.py").write_text(WRITE)
    (tmp_path / "kept.txt").write_text("as it was")
    program = {"command": ["{python}", "write.py", "{rank}"], "pattern": "step", "iterations": 4}
    done = run_in(tmp_path, two_nodes, {"all": program, "some": {**program, "output_limit": "64KiB"}})
    assert done.returncode == 0, done.stderr
    run = load(Path(tmp_path, done.stdout.splitlines()[-1]))
    for trial, most_bytes in zip(run.trials, (10**6, 64 * 1024), strict=True):
        (folder,) = Path(tmp_path, "runs").glob(f"*/trials/**/{trial.variant}/**/output/written")
        found = {str(path.relative_to(folder)): path.stat().st_size for path in folder.rglob("*") if path.is_file()}
        sizes = {"model/weights.bin": 100_000, "log.txt": 6, "new.txt": 3}
        assert found == {
            f"{machine}/{name}": size
            for machine in ("east", "west")
            for name, size in sizes.items()
            if size <= most_bytes
        }
        told = trial.facts["program"]["written"]
        assert told["files"] == len(found)
        assert [*told["not_brought_back"]] == ([] if most_bytes > 100_000 else ["east", "west"])
    assert {path.name for path in tmp_path.iterdir()} == {"write.py", "kept.txt", "runs"}

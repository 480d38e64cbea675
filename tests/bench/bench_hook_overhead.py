"""What the hook costs a user's program: its iterations with and without it, and those that the profiler records.

The programs are the same but for their environment, and take turns at every iteration: each waits for a line before it
begins one, so that a shared machine slows both alike. Times are those of the processor, which do not count who else is
running. The program without the hook runs twice, which shows what this machine can tell apart. That is more than the
hook costs, so its cost for one iteration is measured alone too: by steps of an optimizer with next to nothing to do.
"""

import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from statistics import median

import torch

from wanbed.workloads.user_programs.hook.wanbed_hook.config import OPTIMIZER, HookConfig
from wanbed.workloads.user_programs.hook.wanbed_hook.hook import Hook
from wanbed.workloads.user_programs.program_start import with_hook

ITERATIONS, PROFILED, WARM_UP = 160, 40, 20
STEPS = 5000
MAX_SHARE = 0.01

PROGRAM = """
import sys, time, torch
torch.set_num_threads(1)
torch.manual_seed(1)
layers = [torch.nn.TransformerEncoderLayer(128, 4, 512, batch_first=True) for _ in range(4)]
model = torch.nn.Sequential(*layers)
optimizer = torch.optim.AdamW(model.parameters())
inputs = torch.randn(4, 64, 128)
for line in sys.stdin:
    begin_ns = time.process_time_ns()
    model(inputs).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    print(time.process_time_ns() - begin_ns, flush=True)
"""


def test_hook_overhead(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    config = {
        "log": str(tmp_path / "log.spans"),
        "header": {"rank": 0, "host": "east-0", "datacenter": "east", "gpu": 0, "pipeline": 0, "stage": 0},
        "epoch_ns": time.monotonic_ns(),
        "iterations": ITERATIONS,
        "profile": PROFILED,
        "marked_by": "optimizer",
    }
    (tmp_path / "hook.json").write_text(json.dumps(config), encoding="utf-8")
    bare = {**os.environ, "OMP_NUM_THREADS": "1"}
    environments = {"bare": bare, "bare again": bare, "hooked": with_hook(bare, tmp_path / "hook.json")}
    programs = {
        name: subprocess.Popen(
            [sys.executable, tmp_path / "program.py"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        for name, environment in environments.items()
    }
    times_ns: dict[str, list[int]] = defaultdict(list)
    try:
        for _ in range(ITERATIONS):
            for name, program in programs.items():
                assert program.stdin is not None
                assert program.stdout is not None
                program.stdin.write("\n")
                times_ns[name].append(int(program.stdout.readline()))
    finally:
        for program in programs.values():
            program.communicate()
    profiled_from = ITERATIONS - PROFILED

    def ratio(name: str, begin: int, end: int) -> float:
        # Of the iterations that followed each other at once: the machine is another one a minute later.
        pairs = zip(times_ns[name][begin:end], times_ns["bare"][begin:end], strict=True)
        return median(own / of_bare for own, of_bare in pairs)

    noise, hooked = (ratio(name, WARM_UP, profiled_from) for name in ("bare again", "hooked"))
    # The last iteration ends with the evaluation of the profile.
    profiled = ratio("hooked", profiled_from + 1, ITERATIONS - 1)
    bare_ms = median(times_ns["bare"][WARM_UP:]) / 1e6
    print(f"\nan iteration takes {bare_ms:.1f} ms bare, median of {ITERATIONS - WARM_UP}")
    print(f"hooked over bare: {hooked:.4f}; bare over bare, which is what this machine can tell: {noise:.4f}")
    print(f"profiled over bare: {profiled:.3f}")
    print(f"evaluating {PROFILED} profiled iterations took {(times_ns['hooked'][-1] / 1e9):.1f} s")
    cost_ns = cost_of_a_mark_ns(tmp_path)
    print(f"the hook takes {cost_ns / 1e3:.0f} us an iteration, {cost_ns / bare_ms / 1e6:.3%} of this one")
    assert cost_ns < MAX_SHARE * bare_ms * 1e6


def cost_of_a_mark_ns(folder: Path) -> float:
    """By how much the hook makes a step longer that ends an iteration, the line in the log included."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))])
    header = {"rank": 0, "host": "east-0", "datacenter": "east", "gpu": 0, "pipeline": 0, "stage": 0}
    hook = Hook(HookConfig(str(folder / "steps.spans"), header, 0, 2 * STEPS, 0, OPTIMIZER), start_ns=0)

    def step_ns() -> float:
        begin_ns = time.thread_time_ns()
        for _ in range(STEPS):
            optimizer.step()
        return (time.thread_time_ns() - begin_ns) / STEPS

    step_ns()
    bare_ns = step_ns()
    hook._follow(torch)
    hooked_ns = step_ns()
    hook._switch_off()
    return hooked_ns - bare_ns

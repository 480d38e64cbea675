"""The steps of the first hour on a GPU machine: commands, time limits, and what each shows. Run it to print them."""

from dataclasses import dataclass
from pathlib import Path

EXPERIMENT = Path(__file__).with_name("first-hour.yaml")

_FACTS = (
    "uname -a; nvidia-smi; nvidia-smi -q -d POWER,CLOCK,PERFORMANCE,COMPUTE; nvidia-smi topo -m; nproc; free -g; id; "
    "grep Cap /proc/self/status; ls -l /dev/net/tun /dev/nvidia*; ulimit -a; python3 -m pip list"
)
_TINY = "--set model=gpt-tiny --set training.stages=4 --set training.precision=fp32 --set topology.wan.rate=100Mbit"
_REPLAY = "--set compute='{{kind: replay, profile: {out}/h200.json}}'"


@dataclass(frozen=True)
class Step:
    """A shell command with its time limit. ``{out}`` in it is the folder for results, ``{experiment}`` the experiment.

    ``part`` groups steps that take less than ten minutes together. ``shows`` is what it is for, in a few words.
    ``rehearsal`` stands in for the command on a machine without a GPU; None: it is left out there.
    """

    part: int
    name: str
    limit_s: int
    command: str
    shows: str
    rehearsal: str | None = None


STEPS = (
    Step(1, "facts", 60, _FACTS, "what the machine is", _FACTS),
    Step(1, "doctor", 60, "wanbed doctor", "which WAN it can make, its GPUs", "wanbed doctor"),
    Step(
        1,
        "training",
        240,
        "python -m runner.gpu_kit.check_training cuda",
        "the GPU trains as the CPU does, twice the same bits, torch's own schedules too",
        "python -m runner.gpu_kit.check_training cpu",
    ),
    Step(
        1,
        "swapping",
        150,
        "python -m runner.gpu_kit.check_swapping cuda --output {out}/swapping.json",
        "swapped layers train as those that stay on the GPU, and what loading them takes",
        "python -m runner.gpu_kit.check_swapping cpu --output {out}/swapping.json",
    ),
    Step(
        1,
        "nccl-shared",
        90,
        "python -m runner.gpu_kit.check_collective nccl",
        "whether NCCL sums between two hosts that share a GPU",
        "python -m runner.gpu_kit.check_collective gloo",
    ),
    Step(
        2,
        "hosts",
        60,
        "wanbed exec first east-0 --no-wan -- nvidia-smi -L",
        "emulated hosts come up and see the GPU",
        "wanbed exec first east-0 --no-wan -- true",
    ),
    Step(2, "wan", 120, "wanbed calibrate first", "the links are as configured", "wanbed calibrate first"),
    Step(
        2,
        "quick-profile",
        120,
        "wanbed profile gpt-a --repeats 7 --output {out}/quick.json",
        "profiling works, and how long it takes",
        "wanbed profile gpt-tiny --device cpu --repeats 7 --output {out}/h200.json",
    ),
    Step(
        3, "profile", 480, "wanbed profile gpt-a gpt-b --output {out}/h200.json", "h200.json: gpt-a and gpt-b in bf16"
    ),
    Step(
        4,
        "wan-torch",
        300,
        "wanbed run {experiment} --runs {out}/runs",
        "torch on the GPU over the WAN",
        f"wanbed run {{experiment}} --runs {{out}}/runs {_TINY} "
        "--set compute='{{kind: torch, device: cpu, check_iteration: 0}}'",
    ),
    Step(
        4,
        "wan-replay",
        200,
        f"wanbed run {{experiment}} --runs {{out}}/runs {_REPLAY}",
        "the same, replayed from the profile",
        f"wanbed run {{experiment}} --runs {{out}}/runs {_TINY} {_REPLAY}",
    ),
    Step(
        4,
        "wan-simulated",
        60,
        f"wanbed simulate {{experiment}} --runs {{out}}/runs {_REPLAY}",
        "the same, simulated: the third column",
        f"wanbed simulate {{experiment}} --runs {{out}}/runs {_TINY} {_REPLAY}",
    ),
    Step(
        5,
        "baselines",
        300,
        "wanbed run torch-baselines --runs {out}/runs --set compute.device=cuda --set compute.sharing=8",
        "torch's own schedules on the GPU over the WAN",
    ),
    Step(
        5,
        "prefill",
        240,
        "wanbed run bubbletea-torch --runs {out}/runs --set compute.device=cuda --set compute.sharing=6 "
        "--set prefill.memory=12GiB --set prefill.training_memory=4GiB",
        "prefill of real kernels in bubbles",
    ),
    Step(
        6,
        "wan-nccl",
        240,
        "wanbed run {experiment} --runs {out}/runs --set model=gpt-tiny --set training.stages=1 "
        "--set training.pipelines=3 "
        "--set variants.0.transport.all_reduce=nccl-shared --set variants.1.transport.all_reduce=ring",
        "NCCL over the emulated network on one GPU, beside the ring",
    ),
    Step(
        6,
        "llama-profile",
        200,
        "wanbed profile llama-8b --layers 4 --output {out}/llama.json",
        "prefill by length of the prompt",
    ),
    Step(
        7,
        "far-apart",
        300,
        "wanbed run {experiment} --runs {out}/runs --set topology.wan.latency=40ms --set repeats=2",
        "contention and spread at 40 ms",
    ),
    Step(
        7,
        "relay",
        240,
        "wanbed run {experiment} --runs {out}/runs --substrate relay --set topology.wan.rate=1Gbit",
        "torch on the GPU where no host can be made: TCP is modelled",
        f"wanbed run {{experiment}} --runs {{out}}/runs --substrate relay {_TINY} "
        "--set compute='{{kind: torch, device: cpu, check_iteration: 0}}'",
    ),
)


if __name__ == "__main__":
    for step in STEPS:
        print(f"{step.part} {step.name} ({step.limit_s} s): {step.command.format(out='$OUT', experiment=EXPERIMENT)}")

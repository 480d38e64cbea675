"""The steps of the first hour on a GPU machine: commands, time limits, and what each shows. Run it to print them."""

from dataclasses import dataclass
from pathlib import Path

EXPERIMENT = Path(__file__).with_name("first-hour.yaml")
PLANNED = Path(__file__).with_name("planned.yaml")

_FACTS = (
    "uname -a; nvidia-smi; nvidia-smi -q -d POWER,CLOCK,PERFORMANCE,COMPUTE; nvidia-smi topo -m; nproc; free -g; id; "
    "grep Cap /proc/self/status; ls -l /dev/net/tun /dev/nvidia*; ulimit -a; python3 -m pip list"
)
_TINY = "--set model=gpt-tiny --set training.precision=fp32 --set topology.wan.rate=100Mbit"
_TINY_STAGES = f"{_TINY} --set training.stages=3"
_ON_CPU = "--set compute='{{kind: torch, device: cpu, check_iteration: 0}}'"
_REPLAY = "--set compute='{{kind: replay, profile: {out}/gpu.json}}'"
_PREFILL = (
    "wanbed run bubbletea-torch --runs {out}/runs --set training.iterations=12 --set training.warmup=4 "
    "--set variants='[{{name: training alone, schedule: 1f1b, prefill: none}}, "
    "{{name: planned, schedule: 1f1b, prefill: planned}}]'"
)
_NCCL = (
    "wanbed run {experiment} --runs {out}/runs --set training.stages=1 --set training.pipelines=3 "
    "--set training.microbatches=2 --set variants='[{{name: BACKEND, schedule: 1f1b, "
    "transport: {{all_reduce: BACKEND}}}}, {{name: ring, schedule: 1f1b}}]'"
)
_MODEL_TO_SUM = "'{{layers: 6, hidden: 1024, context: 512, heads: 16, vocabulary: 1024}}'"


@dataclass(frozen=True)
class KitStep:
    """A shell command with its time limit.

    ``{out}`` in it is the folder for results, ``{experiment}`` and ``{planned}`` are the two experiments.

    ``part`` groups steps that take less than ten minutes together. ``shows`` is what it is for, in a few words.
    ``rehearsal`` stands in for the command on a machine without a GPU; None: it is left out there.
    """

    part: int
    name: str
    limit_s: int
    command: str
    shows: str
    rehearsal: str | None = None

    def shell(self, out: str, *, rehearse: bool = False) -> str | None:
        """Return the command with its folders in it, None if it is no part of a rehearsal."""
        command = self.rehearsal if rehearse else self.command
        return None if command is None else command.format(out=out, experiment=EXPERIMENT, planned=PLANNED)


STEPS = (
    KitStep(1, "facts", 60, _FACTS, "what the machine is", _FACTS),
    KitStep(1, "doctor", 60, "wanbed doctor", "which WAN it can make, its GPUs", "wanbed doctor"),
    KitStep(
        1,
        "training",
        240,
        "python -m studies.gpu_kit.check_training cuda",
        "the GPU trains as the CPU does, twice the same bits, torch's own schedules too",
        "python -m studies.gpu_kit.check_training cpu",
    ),
    KitStep(
        1,
        "swapping",
        150,
        "python -m studies.gpu_kit.check_swapping cuda --output {out}/swapping.json",
        "swapped layers train as those that stay on the GPU, and what loading them takes",
        "python -m studies.gpu_kit.check_swapping cpu --output {out}/swapping.json",
    ),
    KitStep(
        1,
        "nccl-shared",
        90,
        "python -m studies.gpu_kit.check_collective nccl",
        "whether NCCL sums between two hosts that share a GPU",
        "python -m studies.gpu_kit.check_collective gloo",
    ),
    KitStep(
        2,
        "hosts",
        60,
        "wanbed exec first east-0 --no-wan -- nvidia-smi -L",
        "emulated hosts come up and see the GPU",
        "wanbed exec first east-0 --no-wan -- true",
    ),
    KitStep(2, "wan", 90, "wanbed calibrate first", "the links are as configured", "wanbed calibrate first"),
    KitStep(
        2,
        "quick-profile",
        120,
        "wanbed profile gpt-a --repeats 7 --output {out}/quick.json",
        "profiling works, and how long it takes",
        "wanbed profile gpt-tiny --device cpu --repeats 7 --output {out}/gpu.json",
    ),
    KitStep(
        2,
        "deterministic",
        120,
        "wanbed profile gpt-a --repeats 7 --deterministic --output {out}/deterministic.json",
        "the same with kernels that give the same bits in every run",
    ),
    KitStep(
        2,
        "events",
        90,
        "python -m studies.gpu_kit.check_events cuda",
        "what timing costs an iteration",
        "python -m studies.gpu_kit.check_events cpu",
    ),
    KitStep(
        3, "profile", 480, "wanbed profile gpt-a gpt-b --output {out}/gpu.json", "gpu.json: gpt-a and gpt-b in bf16"
    ),
    KitStep(
        3,
        "planned-profile",
        100,
        "wanbed profile hidden=1024,context=16384,heads=16,vocabulary=1024 --layers 2 --output {out}/planned.json",
        "planned.json: the layers of the experiment that Atlas is planned for",
    ),
    KitStep(
        4,
        "wan-torch",
        300,
        "wanbed run {experiment} --runs {out}/runs --set compute.profile={out}/gpu.json",
        "torch on the GPU over the WAN",
        f"wanbed run {{experiment}} --runs {{out}}/runs {_TINY_STAGES} {_ON_CPU}",
    ),
    KitStep(
        4,
        "wan-replay",
        200,
        f"wanbed run {{experiment}} --runs {{out}}/runs {_REPLAY}",
        "the same, replayed from the profile",
        f"wanbed run {{experiment}} --runs {{out}}/runs {_TINY_STAGES} {_REPLAY}",
    ),
    KitStep(
        4,
        "wan-simulated",
        60,
        f"wanbed simulate {{experiment}} --runs {{out}}/runs {_REPLAY}",
        "the same, simulated: the third column",
        f"wanbed simulate {{experiment}} --runs {{out}}/runs {_TINY_STAGES} {_REPLAY}",
    ),
    KitStep(
        5,
        "planned",
        150,
        "wanbed run {planned} --runs {out}/runs --set compute.profile={out}/planned.json",
        "Atlas with real kernels, its plan and the outcome; torch's own 1F1B over the WAN",
        f"wanbed run {{planned}} --runs {{out}}/runs {_TINY} --set topology.wan.node_pair_rate=50Mbit {_ON_CPU} "
        "--set compute.checkpointing=false",
    ),
    KitStep(
        5,
        "prefill",
        240,
        f"{_PREFILL} --set repeats=3 --set compute.device=cuda --set compute.sharing=6 "
        "--set prefill.memory=12GiB --set prefill.training_memory=4GiB",
        "prefill of real kernels in bubbles",
        _PREFILL,
    ),
    KitStep(
        6,
        "wan-nccl",
        120,
        f"{_NCCL.replace('BACKEND', 'nccl-shared')} --set compute.profile=a100 --set model={_MODEL_TO_SUM}",
        "NCCL over the emulated network on one GPU, beside the ring",
        f"{_NCCL.replace('BACKEND', 'gloo')} {_TINY} {_ON_CPU}",
    ),
    KitStep(
        6,
        "llama-profile",
        200,
        "wanbed profile llama-8b --layers 4 --repeats 7 --output {out}/llama.json",
        "prefill by length of the prompt",
        "wanbed profile llama-tiny --device cpu --repeats 7 --output {out}/llama.json",
    ),
    KitStep(
        6,
        "relay",
        240,
        "wanbed run {experiment} --runs {out}/runs --substrate relay",
        "torch on the GPU where no host can be made: TCP is modelled",
        f"wanbed run {{experiment}} --runs {{out}}/runs --substrate relay {_TINY_STAGES} {_ON_CPU}",
    ),
)
"""Steps in the order in which they are wanted most within a part; a part takes at most ten minutes."""


if __name__ == "__main__":
    for step in STEPS:
        print(f"{step.part} {step.name} ({step.limit_s} s): {step.shell('$OUT')}")

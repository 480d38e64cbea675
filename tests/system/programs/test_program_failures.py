"""A user's program that misbehaves on emulated hosts: one line names the process at fault, nothing of it is left."""

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from wanbed.results.records.run_store import TrialRecord
from wanbed.results.records.span_log import SpanLogContents
from wanbed.runner.emulation.running_trial import TrialSpec
from wanbed.runner.emulation.trial import run_trial
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.runs.faults import TrialError
from wanbed.testbed.claims.processes import marked_processes
from wanbed.testbed.testbed import Testbed, bring_up

STEPS = "import time, os, sys\nrank = int(os.environ['RANK'])\nfor step in range(100):\n    print('step', step)\n"
TOPOLOGY = {
    "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}],
    "wan": {"latency": "2ms", "rate": "100Mbit"},
}


@dataclass(frozen=True)
class Bed:
    """A testbed that is up, the folder that programs start in (a small disk), and the processes that belong there."""

    testbed: Testbed
    folder: Path
    processes: frozenset[int]

    def run(self, code: str, failed: Path | None = None, **program: Any) -> TrialRecord:
        (self.folder / "train.py").write_text(code)
        written = {
            "command": ["{python}", "train.py"],
            "pattern": "step",
            "iterations": 3,
            "warmup": 1,
            "timeout": "20s",
            **program,
        }
        document = {"topology": TOPOLOGY, "dilation": 1, "variants": [{"name": "mine", "program": written}]}
        point = parse_experiment(document, "exp.yaml", self.folder).points()[0]
        return run_trial(self.testbed, TrialSpec(point.trials()[0], point, 1.0, {}, failed=failed))

    def fault(self, code: str, failed: Path | None = None, **program: Any) -> str:
        with pytest.raises(TrialError) as caught:
            self.run(code, failed, **program)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    def left_over(self) -> frozenset[int]:
        return frozenset(marked_processes(self.testbed.identifier)) - self.processes


@pytest.fixture(scope="module")
def small_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("small-disk")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.fixture(scope="module")
def module_bed(substrate: str, small_disk: Path) -> Iterator[Bed]:
    point = parse_experiment({"topology": TOPOLOGY}, "exp.yaml", Path()).points()[0]
    with bring_up(point.topology, substrate=substrate) as testbed:
        yield Bed(testbed, small_disk, frozenset(marked_processes(testbed.identifier)))


@pytest.fixture
def bed(module_bed: Bed, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bed]:
    monkeypatch.chdir(module_bed.folder)
    yield module_bed
    for path in module_bed.folder.iterdir():
        path.unlink()
    assert module_bed.left_over() == frozenset()


def iterations(log: SpanLogContents) -> list[int]:
    return [span.iteration for span in log.spans if span.kind == "iteration"]


def test_a_program_is_ended_after_its_iterations_and_what_it_printed_is_kept(bed: Bed) -> None:
    record = bed.run(STEPS + "    time.sleep(0.05)\n")
    assert isinstance(record.spans, list)
    assert [iterations(log) for log in record.spans] == [[0, 1, 2], [0, 1, 2]]
    assert [(log.header.rank, log.header.host) for log in record.spans] == [(0, "east-0"), (1, "west-0")]
    assert record.outputs["rank-1.stdout"].read_text().startswith("step 0\nstep 1\nstep 2\n")


@pytest.mark.parametrize("launcher", ["none", "torchrun"])
def test_a_crash_names_its_rank_and_what_it_printed_last(bed: Bed, launcher: str, tmp_path: Path) -> None:
    crash = STEPS + "    if step == 1 and rank == 1: raise RuntimeError('my bug')\n    time.sleep(0.05)\n"
    fault = bed.fault(crash, tmp_path / "failed", launcher=launcher, iterations=90, timeout="60s")
    assert fault.startswith("rank 1 on west-0 ended with status 1: RuntimeError: my bug (what it printed: ")
    assert "Traceback" in (tmp_path / "failed" / "rank-1.stderr").read_text()


def test_a_rank_that_hangs_is_named_with_the_iterations_it_had_done(bed: Bed) -> None:
    hang = STEPS + "    if step == 1 and rank == 1: print('waiting', file=sys.stderr); time.sleep(600)\n"
    fault = bed.fault(hang + "    time.sleep(0.01)\n", iterations=90, timeout="3s")
    assert fault.startswith("rank 1 on west-0 has ended no iteration for 3 s after 2 iterations: it printed last: wait")


def test_a_rendezvous_that_nobody_leaves_ends_with_the_timeout(bed: Bed) -> None:
    fault = bed.fault("import time; print('joining'); time.sleep(600)", timeout="2s")
    assert fault.startswith("rank 0 on east-0 has ended no iteration for 2 s after 0 iterations, like every other rank")
    assert "it printed last: joining" in fault


def test_a_program_that_ignores_sigterm_is_killed_once_it_has_done_enough(bed: Bed) -> None:
    # Nobody else would end its fourth step.
    bed.run(
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + STEPS + "    time.sleep(600 * (step > 2))"
    )


def test_a_program_that_prints_without_end_is_ended(bed: Bed) -> None:
    fault = bed.fault("while True: print('noise' * 1000)", output_limit="1MiB")
    assert "printed more than 1MiB to standard output: noise" in fault
    assert fault.startswith(("rank 0 on east-0", "rank 1 on west-0"))


def test_children_that_went_their_own_way_are_gone_before_the_next_trial(bed: Bed) -> None:
    daemon = "import subprocess; subprocess.Popen(['setsid', '-f', 'sleep', '600'], env={'PATH': os.environ['PATH']})\n"
    bed.run("import os\n" + daemon + STEPS)
    sleeping = subprocess.run(["pgrep", "-fx", "sleep 600"], capture_output=True, text=True, check=False)
    assert sleeping.stdout == ""


def test_a_full_disk_is_the_program_s_own_error(bed: Bed) -> None:
    fault = bed.fault(STEPS + "    open('big', 'ab').write(bytes(10**6)); time.sleep(0.01)\n", iterations=90)
    assert "No space left on device" in fault
    assert fault.startswith("rank ")


def test_a_folder_that_programs_may_only_read_is_not_written_to(bed: Bed) -> None:
    assert "Read-only file system" in bed.fault(STEPS + "    open('mine', 'w')\n", read_only=True)
    assert not (bed.folder / "mine").exists()


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ({"command": ["no-such-program"]}, "cannot start no-such-program: there is no such program on PATH"),
        ({"setup": ["sh", "-c", "echo no data >&2; exit 3"]}, "-0 ended with status 3: no data"),
        (
            {"also": [{"host": "west-0", "command": ["sh", "-c", "echo no port >&2; exit 4"]}]},
            "sh beside the ranks, on west-0 ended with status 4: no port",
        ),
        ({"iterations": 200}, "mine: its program ended well after 100 iterations at rank 0 on east-0, where 200"),
        ({"pattern": "epoch"}, "mine: its program ended well and no iteration was marked"),
    ],
)
def test_what_keeps_a_program_from_training_is_said_in_one_line(bed: Bed, program: dict[str, Any], said: str) -> None:
    slow = STEPS + ("    time.sleep(0.1)\n" if "also" in program else "")
    assert said in bed.fault(slow, **{"iterations": 90, **program})


def test_hosts_have_their_own_names_and_find_each_other(bed: Bed) -> None:
    code = "import socket; print(socket.gethostname(), socket.gethostbyname('west-0') != '127.0.0.1')\n"
    assert bed.run(code + STEPS).outputs["rank-0.stdout"].read_text().startswith("east-0 True")


def test_the_machine_is_as_it_was(module_bed: Bed) -> None:
    assert os.path.ismount(module_bed.folder)
    assert module_bed.left_over() == frozenset()

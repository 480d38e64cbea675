"""Trials on several processes at a time, on a core that computes on paper."""

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.simulator.simulation_on_paper import DEADLOCKING, simulate_on_paper
from tests.support.until import until_within
from wanbed import results
from wanbed.ground.errors import SimulationError
from wanbed.results.records.run_store import RunStore, trial_path
from wanbed.results.records.written_spans import WrittenSpans
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.experiment import Experiment
from wanbed.runner.runs import progress
from wanbed.runner.runs.faults import TrialError
from wanbed.runner.runs.progress import Progress
from wanbed.runner.runs.run_folder import begin_run
from wanbed.runner.simulated_runs.process_pool import ProcessPool
from wanbed.runner.simulated_runs.simulated_run import simulate_sweep
from wanbed.runner.simulator.simulation import Simulation

ROOT = Path(__file__).resolve().parents[3]

until = partial(until_within, 60)


def experiment(points: int = 6, variant: str = "gpipe") -> Experiment:
    return parse_experiment(
        {
            "topology": {"datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}], "wan": {}},
            "compute": {"forward": "10ms", "activation": "32MiB"},
            "training": {"microbatches": 2},
            "variants": [{"name": variant, "schedule": "gpipe"}],
            "sweep": {"topology.wan.latency": [f"{latency}ms" for latency in range(points)]},
            "engine": "simulate",
        },
        "exp.yaml",
        Path(),
    )


def begun(of: Experiment, root: Path) -> RunStore:
    return begin_run(of, root, {"dilation": 1.0})


def swept(of: Experiment, store: RunStore, jobs: int, simulate: Any = simulate_on_paper) -> str:
    """What is told of the progress."""
    stream = io.StringIO()
    with Progress(len(of.trials()), stream=stream) as shown:
        simulate_sweep(of, store, pool=ProcessPool(jobs), progress=shown, simulate=simulate)
    return stream.getvalue()


def every_child() -> set[str]:
    """The processes that this one has started and that have not ended."""
    return {pid for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()}


Children = Callable[[], set[str]]


@pytest.fixture(name="children")
def children_of_the_test() -> Children:
    """Return a function for the children that were not there before the test: a browser of other tests may be."""
    before = every_child()
    return lambda: every_child() - before


def killed_at_3ms(topology: Any, *rest: Any, **effects: Any) -> Simulation:
    if topology.wan[0].conditions.latency_ns == 3_000_000:
        os.kill(os.getpid(), signal.SIGKILL)
    return simulate_on_paper(topology, *rest, **effects)


def faulty(*_: Any, **__: Any) -> Simulation:
    raise ZeroDivisionError


def without_memory(*_: Any, **__: Any) -> Simulation:
    raise MemoryError


def endless_but_the_first(topology: Any, *rest: Any, **effects: Any) -> Simulation:
    if topology.wan[0].conditions.latency_ns:
        time.sleep(3600)
    return simulate_on_paper(topology, *rest, **effects)


def half_way(topology: Any, *rest: Any, pulse: Any = None, **effects: Any) -> Simulation:
    if pulse is not None:
        pulse(0.25)
        pulse(0.5)
    return simulate_on_paper(topology, *rest, **effects)


@pytest.mark.parametrize(("points", "jobs", "kept"), [(1, 1, True), (1, 2, True), (2, 1, False), (2, 2, False)])
def test_the_spans_of_a_single_trial_are_kept_for_its_report(
    tmp_path: Path, points: int, jobs: int, kept: bool
) -> None:
    of, written = experiment(points), WrittenSpans()
    store = begun(of, tmp_path)
    with Progress(points, stream=io.StringIO()) as shown:
        simulate_sweep(of, store, pool=ProcessPool(jobs, written), progress=shown, simulate=simulate_on_paper)
    folders = [trial_path(store.path, *trial) for trial in of.trials()]
    assert [written.taken(folder) is not None for folder in folders] == [kept] * points


@pytest.mark.parametrize("jobs", [1, 2])
def test_progress_tells_how_far_running_trials_are(tmp_path: Path, jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PLAIN_INTERVAL_S", 0.0)
    of = experiment(points=2)
    first, *_, last = (line for line in swept(of, begun(of, tmp_path), jobs, half_way).splitlines() if "left" in line)
    assert first.startswith("0 of 2 trials done; ")
    assert "simulated: " in first
    assert "50%" in first
    assert last.startswith("1 of 2 trials done; ")


def test_two_processes_leave_what_one_would(tmp_path: Path, children: Children) -> None:
    of = experiment()
    alone, together = begun(of, tmp_path / "alone"), begun(of, tmp_path / "together")
    swept(of, alone, 1)
    assert swept(of, together, 2).splitlines()[-1].startswith("6 of 6 trials done; ")
    one, two = results.load(alone.path), results.load(together.path)
    assert len(two.trials) == 6
    assert two.spans.equals(one.spans)
    assert two.link_samples.equals(one.link_samples)
    assert two.summary.equals(one.summary)
    for file in sorted((alone.path / "trials").rglob("*.*")):
        assert (together.path / file.relative_to(alone.path)).read_bytes() == file.read_bytes()
    assert not children()


def test_only_what_is_missing_is_simulated(tmp_path: Path) -> None:
    of = experiment()
    store = begun(of, tmp_path)
    swept(experiment(points=3), store, 1)
    swept(of, store, 1, lambda topology, *rest, **effects: (
        pytest.fail("simulated again") if topology.wan[0].conditions.latency_ns < 3_000_000
        else simulate_on_paper(topology, *rest, **effects)
    ))  # fmt: skip
    assert len(results.load(store.path).trials) == 6


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_deadlock_names_sweep_point_variant_and_what_waits(
    tmp_path: Path, jobs: int, children: Callable[[], set[str]]
) -> None:
    of = experiment(variant=DEADLOCKING)
    words = r"^topology\.wan\.latency=\dms: deadlocks: stage 1 waits for the activation"
    with pytest.raises(SimulationError, match=words):
        swept(of, begun(of, tmp_path), jobs)
    assert not children()


def test_a_simulation_beyond_the_memory_is_reported_with_its_remedy(tmp_path: Path) -> None:
    of = experiment()
    with pytest.raises(TrialError, match=r"ms: gpipe: not enough memory to simulate it: give fewer --jobs"):
        swept(of, begun(of, tmp_path), 1, without_memory)


def test_a_process_that_is_killed_is_reported_with_its_trial_and_the_rest_is_kept(
    tmp_path: Path, children: Callable[[], set[str]]
) -> None:
    of = experiment()
    store = begun(of, tmp_path)
    with pytest.raises(TrialError, match=r"^topology\.wan\.latency=3ms: gpipe: the process .* was killed: if memory"):
        swept(of, store, 2, killed_at_3ms)
    assert len(results.load(store.path).trials) >= 2
    assert not children()
    swept(of, store, 1)
    assert len(results.load(store.path).trials) == 6


def test_a_process_that_fails_is_reported_with_its_trial(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    of = experiment()
    with pytest.raises(TrialError, match=r"ms: gpipe: the process that was to simulate it ended with status 1$"):
        swept(of, begun(of, tmp_path), 2, faulty)
    assert "ZeroDivisionError" in capfd.readouterr().err


def sweeping(store: RunStore) -> "subprocess.Popen[str]":
    """A process that sweeps without end on two others, the three of them in a group of their own."""
    program = (
        "import signal\nfrom pathlib import Path\nfrom wanbed.results.records.run_store import RunStore\n"
        "from tests.runner.simulated_runs import test_simulated_run as t\n"
        "if __name__ == '__main__':\n"
        # Tests that run in a shell's background have it ignored, and so would this.
        "    signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"    t.swept(t.experiment(), RunStore.open(Path({str(store.path)!r})), 2, t.endless_but_the_first)\n"
    )
    script = store.path / "sweep.py"
    script.write_text(program)
    return subprocess.Popen(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def group_of(leader: int) -> list[int]:
    """The processes of that group that still live."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, group = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(group) == leader and state != "Z":
            found.append(int(stat.parent.name))
    return found


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_however_a_sweep_is_ended_its_processes_end_and_what_had_finished_stays(
    tmp_path: Path, ending: signal.Signals
) -> None:
    of = experiment()
    store = begun(of, tmp_path)
    with sweeping(store) as process:
        until(lambda: process.poll() is not None or any(store.has_trial(*trial) for trial in of.trials()))
        if ending is signal.SIGINT:
            # As a terminal does: the whole group hears of it.
            os.killpg(process.pid, ending)
        else:
            process.kill()
        assert process.stderr is not None
        text = process.stderr.read()
    until(lambda: group_of(process.pid) == [])
    assert text.count("Traceback") == (1 if ending is signal.SIGINT else 0)
    assert len(results.load(store.path).trials) == 1
    swept(of, store, 1)
    assert len(results.load(store.path).trials) == 6

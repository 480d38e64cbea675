"""The compute back end of the page on extending, installed as a stranger's package: its ranks train over loopback."""

import os
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import DOCS, blocks
from tests.support import third_party
from wanbed.ground.errors import InputError
from wanbed.results.records.span_log import read_span_log
from wanbed.runner.emulation.rank_configs import SharedConfig, configure_ranks
from wanbed.runner.planner.experiment_file import load_experiment
from wanbed.runner.runs.environment import foreign_compute
from wanbed.runner.runs.not_modelled import left_to_times
from wanbed.runner.simulator.simulation import KIND_CODES
from wanbed.runner.simulator.variant_simulation import simulate_variant
from wanbed.testbed.network.topology import Host
from wanbed.workloads.compute.backends.registry import ENTRY_POINT_GROUP
from wanbed.workloads.rank_config import RankConfig

SECTION = "A compute back end"
PAGE = DOCS / "extending.md"
ROOT = DOCS.parent
PATIENCE_S = 60
NEVER = "compute.forward=1000s"
"""What replayed compute would take longer for than any test."""
TWO_PIPELINES = ("training.stages=1", "training.pipelines=2", "compute.gradient=32KiB")


class Loopback:
    """Addresses of hosts that are all this machine, where no test of another process listens."""

    def address_from(self, host: Host, viewer: Host) -> str:
        return self.address(host)

    def address(self, host: Host) -> str:
        high, low = divmod(os.getpid(), 250)
        return f"127.77.{high % 250}.{1 + low}"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page's experiment, with its package installed."""
    site = tmp_path / "site"
    (code,), (project,), (experiment,) = (blocks(PAGE, language, SECTION) for language in ("python", "toml", "yaml"))
    module = code.splitlines()[0].removeprefix("# ")
    entries = tomllib.loads(project)["project"]["entry-points"][ENTRY_POINT_GROUP]
    third_party.install(site, monkeypatch, module.removesuffix(".py"), ENTRY_POINT_GROUP, entries, code=code)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), str(ROOT)]))
    (tmp_path / "products.yaml").write_text(experiment)
    return tmp_path / "products.yaml"


def planned(file: Path, *overrides: str) -> list[RankConfig]:
    """The plans of the ranks of an experiment's only trial, over loopback and without an emulation around them."""
    (point,) = load_experiment(file, overrides).points()
    (variant,) = point.variants
    setting: dict[str, Any] = {"addresses": Loopback(), "parent_pid": os.getpid(), "folder": file.parent}
    counts = {(one.host.name, other.host.name): 1 for one, other in variant.pairs}
    trial = SharedConfig(**setting, connections=counts, dilation=1.0, run_token="ab" * 16, epoch_ns=0)
    plans = configure_ranks(point, variant, trial)
    return [replace(plan, process=replace(plan.process, start_gate=None)) for plan in plans]


def run(plans: list[RankConfig], folder: Path) -> list[tuple[int, str]]:
    """Run the ranks; return the exit status and standard error of each."""
    processes = []
    for plan in plans:
        path = folder / f"rank-{plan.rank}.json"
        plan.write(path)
        command = [sys.executable, "-m", "wanbed.workloads.rank", str(path)]
        processes.append(subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True))
    try:
        errors = [process.communicate(timeout=PATIENCE_S)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(process.returncode, error) for process, error in zip(processes, errors, strict=True)]


def test_ranks_compute_in_place_of_waiting_for_the_time_in_the_file(file: Path) -> None:
    plans = planned(file, NEVER)
    assert run(plans, file.parent) == [(0, "")] * 2
    for plan in plans:
        log = read_span_log(Path(plan.process.span_log))
        assert log.complete
        computed = [(span.kind, span.iteration, span.microbatch) for span in log.spans if not span.peer]
        assert sorted(computed) == [
            (kind, iteration, microbatch)
            for kind in ("backward", "forward")
            for iteration in (0, 1)
            for microbatch in range(4)
        ]
        assert {span.size_bytes for span in log.spans if span.peer} == {64 * 1024}


def test_pipelines_sum_gradients_of_the_size_in_the_file(file: Path) -> None:
    plans = planned(file, NEVER, "topology.datacenters.0.hosts=2", *TWO_PIPELINES)
    assert run(plans, file.parent) == [(0, "")] * 2
    for plan in plans:
        sums = [
            span.size_bytes for span in read_span_log(Path(plan.process.span_log)).spans if span.kind == "all_reduce"
        ]
        assert sums == [32 * 1024] * 2


def test_what_the_class_refuses_is_reported_of_the_file(file: Path) -> None:
    with pytest.raises(InputError, match=r"compute\.options: size: 0 is not from 1 to 16384$"):
        load_experiment(file, ["compute.options.size=0"])
    with pytest.raises(InputError, match=r"compute\.options: products:Products: no option 'depth': it takes size$"):
        load_experiment(file, ["compute.options.depth=1"])


@pytest.mark.parametrize(
    ("setting", "fault"),
    [
        ("dilation=2", "dilation: what numpy computes cannot be dilated"),
        ("clock=virtual", "compute.kind: in virtual time computation is free, numpy's would take none"),
        ("compute.device=cpu", "device: only torch computes on a device"),
        ("compute.kind=product", "compute.kind: 'product' is not known: did you mean 'products'?"),
    ],
)
def test_its_facts_decide_what_goes_with_it(file: Path, setting: str, fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        load_experiment(file, [setting])


def test_a_simulation_goes_by_the_times_in_the_file(file: Path) -> None:
    (point,) = load_experiment(file, [], engine="simulate").points()
    spans = simulate_variant(point.topology, point.variants[0], 1).spans
    forwards = spans.kind == KIND_CODES["forward"]
    assert set(spans.end_ns[forwards] - spans.start_ns[forwards]) == {5_000_000}
    text = left_to_times([point.spec, point.spec], "a simulation")
    assert text == ["numpy does not run in a simulation: the experiment file gives its times"]


def test_the_manifest_names_its_package(file: Path) -> None:
    (point,) = load_experiment(file, []).points()
    expected = {"compute": "products", "class": "products:Products", "distribution": "products", "version": "1.0"}
    assert foreign_compute([point.spec.compute.kind]) == [expected]

"""The sampler that docs/extending.md adds runs with all others, in the loop of trials."""

import importlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pyarrow.parquet as pq
import pytest

from tests.docs.pages import DOCS, blocks
from wanbed.results.records.run_store import TrialRecord, write_trial
from wanbed.results.records.span_log import RankPlace, SpanLogContents
from wanbed.results.records.trial_id import TrialId
from wanbed.runner.companions.telemetry import on_hosts as telemetry
from wanbed.runner.companions.telemetry.on_hosts import samplers
from wanbed.runner.companions.telemetry.on_hosts.sampling import Sampler, sampling
from wanbed.testbed.hosts.hosts_here import HostsHere
from wanbed.testbed.kernel.link_counters import PortCounters
from wanbed.testbed.kernel.tcp import TcpStateReader
from wanbed.testbed.running_testbed import RunningTestbed

MODULE = "wanbed.runner.companions.telemetry.on_hosts.load_average_sampler"
Registry = tuple[type[Sampler[Any]], ...]


class NoHosts(HostsHere):
    """A testbed without hosts, links and GPUs."""

    addresses = SimpleNamespace(host_names=dict)

    def tcp_state_reader(self) -> TcpStateReader:
        return TcpStateReader([])

    def read_counters(self) -> list[PortCounters]:
        return []

    def network_cpu_time_s(self) -> None:
        return None


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ModuleType, Registry]]:
    """The module that the page adds to the telemetry's folder, and the registry as the page leaves it."""
    module_text, registry_text = blocks(DOCS / "extending.md", "python", "A telemetry sampler")
    path = f"{MODULE.removeprefix('wanbed.').replace('.', '/')}.py"
    assert module_text.startswith(f"# {path}\n")
    (tmp_path / Path(path).name).write_text(module_text, encoding="utf-8")
    monkeypatch.setattr(telemetry, "__path__", [*telemetry.__path__, str(tmp_path)])
    module = importlib.import_module(MODULE)
    names = dict(vars(samplers))
    exec(registry_text, names)  # noqa: S102 - the page's own line
    yield module, names["SAMPLERS"]
    del sys.modules[MODULE]


def test_the_registry_has_one_more_entry(page: tuple[ModuleType, Registry]) -> None:
    module, registry = page
    assert registry == (*samplers.SAMPLERS, module.LoadAverageSampler)


def test_its_rows_are_in_a_file_of_the_trial(page: tuple[ModuleType, Registry], tmp_path: Path) -> None:
    _, registry = page
    epoch_ns = time.monotonic_ns()
    with sampling(registry, cast("RunningTestbed", NoHosts()), epoch_ns, dilation=2.0) as samples:
        time.sleep(0.6)
    log = SpanLogContents(RankPlace(0, "east-0", "east", 0, 0, 0), (), complete=True)
    trial = write_trial(tmp_path / "run", TrialRecord(TrialId(0, "gpipe", 1), [log], samples.tables, samples.facts))

    table = pq.read_table(trial / "load_averages.parquet")
    assert all((field.metadata or {})[b"meaning"] for field in table.schema)
    first, second, last = table.to_pylist()
    assert {"sweep_point": 0, "variant": "gpipe", "repeat": 1}.items() <= first.items()
    # Half a second of the machine's clock is a quarter of the experiment's.
    assert second["time_ns"] - first["time_ns"] >= 0.25e9
    assert first["time_ns"] < second["time_ns"] < last["time_ns"] <= (time.monotonic_ns() - epoch_ns) / 2
    assert first["load_1min"] >= 0
    assert first["runnable_tasks"] >= 1
    assert "machine_load" in json.loads((trial / "trial.json").read_text())

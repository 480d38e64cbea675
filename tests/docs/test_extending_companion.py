"""The companion that docs/extending.md adds pings while a training runs."""

import importlib
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest

from tests.docs.pages import DOCS, blocks
from wanbed.runner import companions as features
from wanbed.runner.emulation import companions
from wanbed.runner.emulation.companion import Companion
from wanbed.runner.emulation.running_trial import RunningTrial, Trained

Registry = tuple[type[Companion], ...]


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ModuleType, Registry]]:
    """The module that the page adds, and the registry as the page leaves it."""
    module_text, registry_text = blocks(DOCS / "extending.md", "python", "A companion of a training")
    assert module_text.startswith("# runner/companions/ping/on_hosts.py\n")
    (tmp_path / "ping").mkdir()
    (tmp_path / "ping" / "__init__.py").touch()
    (tmp_path / "ping" / "on_hosts.py").write_text(module_text, encoding="utf-8")
    monkeypatch.setattr(features, "__path__", [*features.__path__, str(tmp_path)])
    module = importlib.import_module("wanbed.runner.companions.ping.on_hosts")
    names = dict(vars(companions))
    exec(registry_text, names)  # noqa: S102 - the page's own line
    yield module, names["COMPANIONS"]
    for name in ("wanbed.runner.companions.ping.on_hosts", "wanbed.runner.companions.ping"):
        del sys.modules[name]


def trial(datacenters: int, dilation: float = 1.0) -> RunningTrial:
    """A trial whose hosts are all this machine."""
    hosts = [SimpleNamespace(hosts=[SimpleNamespace(name=f"host-{number}")]) for number in range(datacenters)]
    setting = SimpleNamespace(addresses=SimpleNamespace(address_from=lambda *_: "127.0.0.1"), dilation=dilation)
    testbed = SimpleNamespace(spawn=lambda _, argv, **popen: subprocess.Popen(argv, **popen))
    point = SimpleNamespace(topology=SimpleNamespace(datacenters=hosts))
    return cast("RunningTrial", SimpleNamespace(testbed=testbed, setting=setting, point=point))


def test_the_registry_has_one_more_entry(page: tuple[ModuleType, Registry]) -> None:
    module, registry = page
    assert registry == (*companions.COMPANIONS, module.Ping)


def test_it_pings_beside_a_training_and_a_trial_without_a_wan_has_none(page: tuple[ModuleType, Registry]) -> None:
    module, _ = page
    assert module.Ping.of(trial(1)) is None
    with ExitStack() as during:
        ping: Any = module.Ping.of(trial(2, dilation=2.0))
        during.enter_context(ping.during())
        ping.begin()
        time.sleep(0.5)
        ping.look()
    trips_ms = ping.left(Trained([])).facts["ping_ms"]
    assert len(trips_ms) >= 2
    assert all(0 < trip_ms < 1000 for trip_ms in trips_ms)

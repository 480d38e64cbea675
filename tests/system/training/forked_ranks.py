"""``wanbed`` whose ranks are forked from one process that has loaded torch, as they are in virtual time.

``python -m tests.system.training.forked_ranks ARGUMENT...`` is ``wanbed ARGUMENT...``, but that it does not measure the
links, on which nothing depends that ranks compute, and leaves the pictures of its report empty. ``fork_ranks`` forks
those of the testbeds of this process. A rank that loads torch itself takes two seconds of a processor to do so. It is
on its host and does the same, whichever process started it. Ranks that load it themselves are those of
``test_without_root.py``.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import yaml

from tests.support.runner.wanbed_command import BUSY_OR_NOT
from wanbed import results
from wanbed.command import main as wanbed
from wanbed.results.reading.run import Run
from wanbed.runner.emulation import measured_network
from wanbed.testbed.hosts.emulated_hosts import EmulatedHost, EmulatedNetwork
from wanbed.testbed.virtual_time.fork_server import NAMESPACE_FLAGS
from wanbed.testbed.virtual_time.light_hosts import ForkedProcess, ForkServer

LOADED = "tests.system.training.loaded_torch"


@cache
def server_of(marker: str) -> ForkServer:
    """The process that the ranks of a testbed are forked from; it ends with the testbed, whose mark it has."""
    server = ForkServer(marker)
    with ExitStack() as opened:
        own = {kind: opened.enter_context(open(f"/proc/self/ns/{kind}")).fileno() for kind in NAMESPACE_FLAGS}
        assert server.start(LOADED, [], sys.stderr.fileno(), own).wait() == 0
    return server


def start_module(
    host: EmulatedHost, module: str, arguments: list[str], output: int, environment: Mapping[str, str]
) -> ForkedProcess:
    assert not environment
    with ExitStack() as opened:
        namespaces = {
            kind: opened.enter_context(open(f"/proc/{host.pid}/ns/{kind}")).fileno() for kind in NAMESPACE_FLAGS
        }
        return server_of(host._marker).start(module, arguments, output, namespaces)


ROOT = Path(__file__).parents[3]
ENVIRONMENT = {"PYTHONPATH": str(ROOT), "TORCH_CPP_LOG_LEVEL": "FATAL"}
"""What the process that is forked needs: to find these tests, and what ranks set before they load torch."""


def fork_ranks(replace: Callable[[type, str, object], None] = setattr) -> None:
    """Fork what any testbed of this process starts on its hosts."""
    replace(EmulatedHost, "start_module", start_module)
    replace(EmulatedNetwork, "module_parent", property(lambda network: server_of(network.hosts[0]._marker).pid))


def trained(experiment: Mapping[str, Any], folder: Path, *options: str) -> Run:
    """Run an experiment in a process of its own and load what it stored."""
    file = folder / "experiment.yaml"
    file.write_text(yaml.safe_dump(experiment), encoding="utf-8")
    command = [sys.executable, "-m", __spec__.name, "run", str(file), "--runs", str(folder), "--json", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode in BUSY_OR_NOT, done.stderr
    return results.load(json.loads(done.stdout)["run"])


def main() -> None:
    os.environ |= ENVIRONMENT
    fork_ranks()
    with mock.patch.object(measured_network, "calibrate", return_value=[]):
        wanbed()


if __name__ == "__main__":
    main()

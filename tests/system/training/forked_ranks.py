"""``wanbed`` whose ranks are forked from one process that has loaded torch, as they are in virtual time.

``python -m tests.system.training.forked_ranks ARGUMENT...`` is ``wanbed ARGUMENT...``. A rank that loads torch itself
takes two seconds of a processor to do so. It is on its host and does the same, whichever process started it.
"""

import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from functools import cache
from pathlib import Path

from testbed.hosts.emulated_hosts import EmulatedHost, EmulatedNetwork
from testbed.virtual_time.processes.fork_server import NAMESPACE_FLAGS
from testbed.virtual_time.processes.forked_process import ForkedProcess, ForkServer
from wanbed.command import main as wanbed

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


def main() -> None:
    os.environ |= {"PYTHONPATH": str(Path(__file__).parents[3]), "TORCH_CPP_LOG_LEVEL": "FATAL"}
    EmulatedHost.start_module = start_module
    EmulatedNetwork.module_parent = property(lambda network: server_of(network.hosts[0]._marker).pid)
    wanbed()


if __name__ == "__main__":
    main()

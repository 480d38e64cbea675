"""Run a relay as a process. Each line of standard input is a command in JSON, answered by one line on standard output.

The relay ends with its standard input. As a program: ``relay_process CONFIG``.
"""

import ctypes
import gc
import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

from wanbed.testbed.network.tcp_settings import TcpSettings
from wanbed.testbed.relay.relay import Relay
from wanbed.testbed.relay.relay_config import RelayConfig

_PR_SET_TIMERSLACK = 29
_COMMAND_BYTES = 65_536


class Commands:
    """The commands to one relay: what to set, and the counters to answer with."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._pending = b""

    def handle(self) -> bool:
        """Answer the commands that have arrived. Return False at the end of standard input."""
        data = os.read(sys.stdin.fileno(), _COMMAND_BYTES)
        *lines, self._pending = (self._pending + data).split(b"\n")
        for line in lines:
            answer = json.dumps(self._answer(json.loads(line))) + "\n"
            os.write(sys.stdout.fileno(), answer.encode())
        return bool(data)

    def _answer(self, command: dict[str, Any]) -> dict[str, Any]:
        match command:
            case {"tcp": settings}:
                self._relay.settings = TcpSettings(**settings)
            case {"trim_ns": trim_ns}:
                self._relay.trim(trim_ns)
            case {"look": _}:
                self._relay.look()
            case {"counters": _}:
                return {"pairs": [[*ends, lane.wire_bytes] for ends, lane in self._relay.lanes.items()]}
            case _:
                return {"error": f"no such command: {command}"}
        return {}


def main(arguments: list[str]) -> None:
    """Run the relay of the configuration file, and print ``{}`` once it is ready."""
    # By default the kernel may wake a process 50 us late.
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    _, most_descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_descriptors, most_descriptors))
    relay = Relay(RelayConfig.read(Path(arguments[0])))
    relay.watch_commands(sys.stdin.fileno(), Commands(relay).handle)
    # Collecting what will never be garbage would hold up everybody's bytes.
    gc.freeze()
    print("{}", flush=True)
    relay.run()


if __name__ == "__main__":
    main(sys.argv[1:])

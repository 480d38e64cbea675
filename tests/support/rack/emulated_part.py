"""Bring one machine's part of an emulated network up on a played machine, and run programs on its hosts."""

import json
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from tests.support.rack.machines import Command, PlayedMachine
from wanbed.testbed.rack.machine_plan import MachinePlan

_UP_S, _ANSWER_S = 90.0, 30.0


class EmulatedPart:
    """The hosts and the gateway of one machine, for the duration of a ``with`` block."""

    def __init__(
        self, machine: PlayedMachine, plan: MachinePlan, *, shaped: bool = True, private_key: str = ""
    ) -> None:
        self.machine = machine
        self.plan = plan
        self._argv = [sys.executable, "-m", "tests.support.rack.one_machine", plan.to_json()]
        self._argv += [] if shaped else ["unshaped"]
        self._argv += [f"key={private_key}"] if private_key else []
        self._answers = 0

    def __enter__(self) -> Self:
        """Only start: parts come up side by side, ``wait_up`` waits for one."""
        self.running: Command = self.machine.start(self._argv, has_input=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.running.kill()

    def wait_up(self) -> dict[str, Any]:
        """Wait until the part is up and return its facts. Raise RuntimeError with the error if it is refused."""
        answer = self._answer(_UP_S)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        self._pids: dict[str, int] = answer["pids"]
        return dict(answer["facts"])

    def ask(self, request: str) -> Any:
        """Send a request of ``one_machine`` and return the answer."""
        self.running.send(request)
        return self._answer(_ANSWER_S)

    def _answer(self, patience_s: float) -> Any:
        deadline = time.monotonic() + patience_s
        while len(lines := self.running.output().split("\n")[:-1]) <= self._answers:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.machine.name} does not answer: {self.running.output()[-3000:]}")
            time.sleep(0.05)
        self._answers += 1
        try:
            return json.loads(lines[self._answers - 1])
        except ValueError:
            raise RuntimeError(f"{self.machine.name}: {self.running.output()[-3000:]}") from None

    def namespace(self, node: str) -> str:
        """Return the path of the network namespace of a host or the gateway, of a machine that a namespace plays."""
        return f"/proc/{self._pids[node]}/ns/net"

    def start(self, node: str, argv: Sequence[str]) -> Command:
        """Start a program on a host or the gateway."""
        return self.machine.start(["nsenter", f"--target={self._pids[node]}", "--net", "--", *argv])

    def run(self, node: str, argv: Sequence[str], timeout_s: float = 60.0) -> str:
        """Run a program on a host or the gateway and return its output."""
        command = self.start(node, argv)
        try:
            command.wait(timeout_s)
            return command.output()
        finally:
            command.kill()

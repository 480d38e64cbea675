"""Call the methods of one machine of a rack through its agent, an actor of Ray."""

import math
import socket
import time
from collections.abc import Mapping
from typing import Any

from wanbed.runner.rack.host_placement import Node
from wanbed.runner.rack.on_machine import RAISED
from wanbed.runner.rack.shipped.program_needs import ProgramNeeds
from wanbed.runner.rack.shipped.user_modules import UserModules
from wanbed.testbed.gpus.gpus import Gpu, visible_gpus
from wanbed.testbed.kernel.missing import MissingError
from wanbed.testbed.rack.machine_handle import MachineLostError

_ASK_AFTER_S = 2.0
_KERNEL_LIMIT_S = 8.0
"""Long enough for the first packet of a connection to be sent four times."""
_SILENCE_LIMIT_S = 15.0
_MOST_CHARACTERS = 200
_NODE_ENDED = ("node died", "node has died", "node was terminated", "nodeaffinityschedulingstrategy doesn't exist")
"""The texts, in small letters, that Ray's messages have where a node has gone. Ray gives the last one if the node went
before the run had started anything there."""


class RemoteTraceback(Exception):  # noqa: N818 - it carries a traceback's text, as that of multiprocessing does
    """The place on the machine where an error was raised, as text."""


class RayPending:
    """A call that is under way on a machine, which is asked whether it is still there if that takes long."""

    def __init__(self, handle: "RayHandle", reference: Any) -> None:
        self._handle = handle
        self._reference = reference

    def result(self, timeout_s: float | None = None) -> Any:
        """Wait for the method's end and return what it returned; see ``wanbed.testbed.rack.machine_handle.Pending``."""
        machine = self._handle.name
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left_s = None if until_s is None else max(0.0, until_s - time.monotonic())
            try:
                wait_s = _ASK_AFTER_S if left_s is None else min(_ASK_AFTER_S, left_s)
                how, value, *trace = answer_of(machine, self._reference, wait_s)
            except TimeoutError:
                if left_s is not None and left_s <= _ASK_AFTER_S:
                    raise TimeoutError(f"{machine} has not answered within {timeout_s:g} s") from None
                self._handle.check_there()
                self._handle.check_agent()
                continue
            if how == RAISED:
                raise value from RemoteTraceback(f"on {machine}:\n{trace[0]}")
            return value


class RayHandle:
    """A machine of the rack, see ``wanbed.testbed.rack.machine_handle.MachineHandle``; ``node`` is its node of Ray."""

    def __init__(self, node: Node, agent: Any) -> None:
        self._node = node
        self._name = node.name
        self._agent = agent

    @property
    def name(self) -> str:
        """The machine's name."""
        return self._name

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the machine and return what it returns."""
        return self.start_call(method, *arguments).result()

    def datagram_socket(self) -> socket.socket:
        """Return a UDP socket of this machine, which is one of the cluster."""
        return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def start_call(self, method: str, *arguments: Any) -> RayPending:
        """Send a call and return without waiting for it. An argument may be a reference from ``shared_object``."""
        return RayPending(self, self._agent.call.remote(method, *arguments))

    def is_reachable(self, timeout_s: float) -> bool:
        """Return whether the machine's kernel answers within ``timeout_s``, however busy its processes are."""
        return is_reachable(self._node, timeout_s)

    def check_there(self) -> None:
        """Raise MachineLostError if the machine's kernel is silent."""
        _check_there(self._node)

    def check_agent(self) -> None:
        """Raise MachineLostError if the agent is silent."""
        try:
            answer_of(self._name, self._agent.holder.remote(), _SILENCE_LIMIT_S)
        except TimeoutError:
            raise MachineLostError(
                f"{self._name} has left the rack: its agent has not answered for {_SILENCE_LIMIT_S:.0f} s"
            ) from None

    def check_programs(self, needs: ProgramNeeds) -> None:
        """Raise MissingError if the machine lacks something for users' programs."""
        self._check(self._agent.lacking_program.remote(needs))

    def load_modules(self, modules: UserModules) -> None:
        """Give the machine a user's modules. Raise MissingError if it cannot import a class of them."""
        self._check(self._agent.load_modules.remote(modules))

    def check_computes(self, backend_path: str, options: Mapping[str, Any]) -> None:
        """Raise MissingError if the machine lacks something for a compute back end."""
        self._check(self._agent.lacking_for.remote(backend_path, dict(options)))

    def _check(self, reference: Any) -> None:
        lacking = self._answer(reference)
        if lacking is not None:
            raise MissingError(f"machine {self._name}: {lacking}")

    def gpus(self) -> tuple[Gpu, ...]:
        """Return the GPUs that Ray has given to the run on this machine."""
        visible = self._answer(self._agent.visible_gpus.remote())
        return visible_gpus(tuple(Gpu(**document) for document in self.call("facts").gpus), visible)

    def has_started(self, limit_s: float) -> bool:
        """Wait until the agent answers, and return whether it does within ``limit_s``."""
        try:
            self._answer(self._agent.holder.remote(), limit_s)
        except TimeoutError:
            return False
        return True

    def _answer(self, reference: Any, limit_s: float = math.inf) -> Any:
        return answer_while_there(self._node, reference, limit_s)


def answer_while_there(node: Node, reference: Any, limit_s: float = math.inf) -> Any:
    """Return what an actor or task on a node's machine answers, as ``answer_of`` does.

    Raise MachineLostError as soon as the machine's kernel is silent: Ray itself takes a minute to notice a cut cable.
    """
    until_s = time.monotonic() + limit_s
    while True:
        try:
            return answer_of(node.name, reference, _ASK_AFTER_S)
        except TimeoutError:
            if time.monotonic() > until_s:
                raise TimeoutError(f"{node.name} has not answered within {limit_s:g} s") from None
            _check_there(node)


def _check_there(node: Node) -> None:
    if not is_reachable(node, _KERNEL_LIMIT_S):
        raise MachineLostError(f"{node.name} has left the rack: it has not answered for {_KERNEL_LIMIT_S:.0f} s")


def is_reachable(node: Node, timeout_s: float) -> bool:
    """Return whether the kernel of a node's machine answers, by a connection to Ray's port there that is only opened.

    It answers by itself, accepting or refusing. Where Ray names no port, the machine counts as reachable.
    """
    if not node.port:
        return True
    until_s = time.monotonic() + timeout_s
    while (left_s := until_s - time.monotonic()) > 0:
        try:
            socket.create_connection((node.address, node.port), left_s).close()
        except ConnectionRefusedError:
            return True
        except OSError:
            # A neighbour whose address is not known yet counts as unreachable before the time is over.
            time.sleep(min(0.1, left_s))
            continue
        return True
    return False


def shared_object(value: Any) -> Any:
    """Return a reference to a value that Ray takes to each machine once, however many calls have it as an argument."""
    import ray  # noqa: PLC0415

    return ray.put(value)


def answer_of(machine: str, reference: Any, timeout_s: float | None = None) -> Any:
    """Return what an actor or task on a machine answers.

    Raise MachineLostError if the machine or its process has gone, TimeoutError after ``timeout_s``, MissingError if Ray
    could not send wanbed there, and what was raised there.
    """
    import ray  # noqa: PLC0415
    from ray import exceptions  # noqa: PLC0415

    try:
        return ray.get(reference, timeout=timeout_s)
    except exceptions.GetTimeoutError:
        raise TimeoutError(f"{machine} has not answered within {timeout_s:g} s") from None
    except exceptions.RayTaskError:
        raise
    except exceptions.RuntimeEnvSetupError as fault:
        reason = " ".join(str(fault).split())[:_MOST_CHARACTERS]
        raise MissingError(f"{machine}: Ray could not send wanbed there: {reason}") from fault
    except exceptions.ActorUnavailableError as fault:
        raise MachineLostError(f"{machine} has left the rack: its Ray node does not answer any more") from fault
    except exceptions.RayError as fault:
        raise MachineLostError(f"{machine} has left the rack: {_reason(fault)}") from fault


def _reason(fault: BaseException) -> str:
    """Return in a few words what Ray says, in many, of a machine or a process that has gone."""
    text = " ".join(str(fault).split())
    if any(sign in text.lower() for sign in _NODE_ENDED):
        return "its Ray node has ended, or the network to it is cut"
    return "its agent has ended" if "actor" in text.lower() else text[:_MOST_CHARACTERS]

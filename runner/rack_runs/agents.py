"""Start an agent of Ray on each machine that a run uses, call the machine's methods through it, end it with the run.

An agent's name holds its machine: a second run finds it taken. It ends with the process that drives the run, however
that ends, and with it everything of the run on the machine.
"""

import getpass
import math
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from wanbed.ground.errors import MissingError
from wanbed.runner.rack_runs import on_machine
from wanbed.runner.rack_runs.cluster import NAMESPACE, Node
from wanbed.runner.rack_runs.on_machine import RAISED
from wanbed.runner.rack_runs.sent_programs import ProgramNeeds
from wanbed.runner.rack_runs.user_modules import UserModules
from wanbed.runner.runs.run_folder import Log
from wanbed.testbed.gpus.gpus import Gpu, visible_gpus
from wanbed.testbed.rack.machine_handle import MachineLostError

CALLS_AT_ONCE = 64
"""The most calls that one machine works on at a time; a program that runs there may be waited for in one of them."""

_START_LIMIT_S = 60.0

_ANSWER_LIMIT_S = 10.0

_LOOK_INTERVAL_S = 2.0

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


def holder_text(source: str) -> str:
    """Return how a run is named to somebody else whose machine it uses."""
    with suppress(KeyError, OSError):
        return f"{source} ({getpass.getuser()} on {socket.gethostname()}, since {time.strftime('%H:%M')})"
    return f"{source} (on {socket.gethostname()}, since {time.strftime('%H:%M')})"


@contextmanager
def agents_on(
    nodes: Sequence[Node],
    holder: str,
    *,
    sent: bool = False,
    gpus: Mapping[str, int] | None = None,
    queue: bool = False,
    log: Log = lambda _: None,
    machine: str = on_machine.MACHINE,
) -> Iterator[dict[str, RayHandle]]:
    """Yield a handle of each node's machine, by name.

    ``gpus`` is how many GPUs Ray is to account to the run on each machine. Raise MissingError, naming the other run, if
    a machine is taken; with ``queue`` wait for it instead.
    """
    import ray  # noqa: PLC0415

    agents: dict[str, Any] = {}
    try:
        for node in nodes:
            agents[node.name] = _started(
                node, (holder, node.address, sent, machine), gpus=(gpus or {}).get(node.name, 0), queue=queue, log=log
            )
        handles = {node.name: RayHandle(node, agents[node.name]) for node in nodes}
        for handle in handles.values():
            _check_started(handle)
        yield handles
    finally:
        for agent in agents.values():
            ray.kill(agent)


def held_by(node: Node) -> str | None:
    """Return which run uses a node's machine, None if none does."""
    import ray  # noqa: PLC0415

    try:
        agent = ray.get_actor(_name(node), namespace=NAMESPACE)
        return str(answer_of(node.name, agent.holder.remote(), _ANSWER_LIMIT_S))
    except (ValueError, MachineLostError):
        return None
    except TimeoutError:
        return "a run that does not answer"


def on_node(function: Any, node: Node, **options: Any) -> Any:
    """Return a function or class as what Ray runs on that node, and only there, without taking a core of it."""
    import ray  # noqa: PLC0415
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: PLC0415

    ray.cloudpickle.register_pickle_by_value(on_machine)
    strategy = NodeAffinitySchedulingStrategy(node.node_id, soft=False)
    return ray.remote(function).options(num_cpus=0, max_retries=0, scheduling_strategy=strategy, **options)


def actor_on_node(kind: Any, node: Node, **options: Any) -> Any:
    """Return a class as an actor's of Ray on that node; it is not started again if it ends."""
    import ray  # noqa: PLC0415
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: PLC0415

    ray.cloudpickle.register_pickle_by_value(on_machine)
    strategy = NodeAffinitySchedulingStrategy(node.node_id, soft=False)
    return ray.remote(kind).options(
        num_cpus=0, max_restarts=0, max_task_retries=0, scheduling_strategy=strategy, **options
    )


def _started(node: Node, arguments: tuple[Any, ...], *, gpus: int, queue: bool, log: Log) -> Any:
    agent = actor_on_node(
        on_machine.MachineAgent,
        node,
        name=_name(node),
        namespace=NAMESPACE,
        num_gpus=gpus,
        max_concurrency=CALLS_AT_ONCE,
    )
    told = None
    while True:
        try:
            return agent.remote(*arguments)
        except ValueError:
            other = held_by(node)
        if other is None:
            # It ended in between.
            time.sleep(_LOOK_INTERVAL_S / 10)
            continue
        if not queue:
            raise MissingError(f"{node.name} carries {other}: wait for its end with --queue, or end it")
        if other != told:
            log(f"{node.name} carries {other}: waiting for its end")
            told = other
        time.sleep(_LOOK_INTERVAL_S)


def _check_started(handle: RayHandle) -> None:
    if not handle.has_started(_START_LIMIT_S):
        raise MissingError(
            f"{handle.name} has not started wanbed's agent within {_START_LIMIT_S:.0f} s: `ray status` shows whether "
            "something else holds its GPUs"
        )


def _name(node: Node) -> str:
    return f"machine-{node.node_id}"

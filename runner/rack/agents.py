"""Start an agent on each machine that a run uses, and end them with the run.

An agent's name holds its machine: a second run finds it taken. It ends with the process that drives the run, however
that ends, and with it everything of the run on the machine.
"""

import getpass
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from wanbed.runner.rack import on_machine
from wanbed.runner.rack.cluster import NAMESPACE
from wanbed.runner.rack.host_placement import Node
from wanbed.runner.rack.ray_handle import RayHandle, answer_of
from wanbed.runner.runs.run_folder import Log
from wanbed.testbed.kernel.missing import MissingError
from wanbed.testbed.rack.machine_handle import MachineLostError

CALLS_AT_ONCE = 64
"""The most calls that one machine works on at a time; a program that runs there may be waited for in one of them."""

_START_LIMIT_S = 60.0
_ANSWER_LIMIT_S = 10.0
_LOOK_INTERVAL_S = 2.0


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

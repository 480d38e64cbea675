"""Be one machine of a rack: bring its part of the network up, and do what lines on the standard input ask for.

Arguments: the plan as JSON, and optionally ``unshaped`` and ``key=`` with the private key of a tunnel. Every answer is
a line of JSON. The first is given once all is up, with a PID in the namespaces of every host and of the gateway. It
ends with its input.
"""

import json
import sys
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

from wanbed.ground.errors import WanbedError
from wanbed.testbed.hosts.emulated_hosts import EmulatedNetwork
from wanbed.testbed.hosts.host_attachment import attach_host
from wanbed.testbed.rack.machine.machine_network import MachineNetwork
from wanbed.testbed.rack.machine_plan import MachinePlan

MARKER = "wb-one-machine"
SETTLE, COUNTERS, QDISCS, OFFLOADS = "settle", "counters", "qdiscs", "offloads"


def main() -> None:
    plan, shaped = MachinePlan.from_json(sys.argv[1]), "unshaped" not in sys.argv
    nodes = EmulatedNetwork()
    (private_key,) = [each.removeprefix("key=") for each in sys.argv if each.startswith("key=")] or [""]
    with ExitStack() as ending:
        ending.callback(nodes.stop)
        hosts = {port.host: nodes.add(port.host, MARKER) for port in plan.host_ports}
        try:
            namespaces = {name: host.namespace for name, host in hosts.items()}
            network = MachineNetwork(plan, nodes, MARKER, namespaces, shaped=shaped, private_key=private_key)
        except WanbedError as fault:
            _print({"error": f"{type(fault).__name__}: {fault}"})
            return
        ending.callback(network.stop)
        for port in plan.host_ports:
            attach_host(hosts[port.host].namespace, plan.gateway, port, plan.mtu_bytes)
        _print({"pids": {node.name: node.shell_pid for node in nodes.hosts}, "facts": asdict(network.facts)})
        for line in sys.stdin:
            _print(_answer(network, *line.split()))


def _answer(network: MachineNetwork, request: str, argument: str = "0") -> Any:
    if request == SETTLE:
        network.settle(int(argument))
        return "settled"
    if request == COUNTERS:
        return [
            {**asdict(port), "pairs": [[*ends, counters] for ends, counters in port.pairs.items()]}
            for port in network.read_counters()
        ]
    return network.read_qdiscs() if request == QDISCS else network.read_offloads()


def _print(answer: Any) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

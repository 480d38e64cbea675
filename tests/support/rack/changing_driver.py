"""Three hosts on three machines and trunks that change; as a program, a driver that lets them change until its end.

Its arguments are those of the machines' handles, as JSON, and the folder of its own claim.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from tests.support.rack.machine_process import ProcessHandle
from wanbed.ground.strict_model import parse_model
from wanbed.testbed.network.topology import Topology, resolve_topology
from wanbed.testbed.network.topology_spec import TopologySpec
from wanbed.testbed.rack.machine_handle import RunOrder
from wanbed.testbed.rack.rack_testbed import RackPlacement, rack_testbed

MACHINE_OF = {"east-0": "space0", "east-1": "space1", "east-2": "space0", "east-3": "space1", "west-0": "space2"}
MACHINE_OF |= {"west-1": "space2"}
RATES_MBIT = (100, 40, 50)
"""The rates of both trunks, each for a second."""


def changing_topology(*, loop: bool = False) -> Topology:
    """Return a network whose trunks bind at any time, on every machine."""
    first, *later = RATES_MBIT
    wan: dict[str, Any] = {
        "latency": "0ms",
        "rate": f"{first}Mbit",
        "events": [{"at": f"{at}s", "rate": f"{rate}Mbit"} for at, rate in enumerate(later, start=1)],
    }
    if loop:
        generate = {"length": "1s", "step": "100ms", "markov": {"levels": ["100%", "50%"], "stay": "200ms"}}
        wan = {"latency": "0ms", "rate": f"{first}Mbit", "generate": generate, "loop": True}
    datacenters = [{"name": "east", "hosts": 4}, {"name": "west", "hosts": 2}]
    document = {"datacenters": datacenters, "wan": wan, "intra": {"latency": "0ms", "rate": "unlimited"}}
    return resolve_topology(parse_model(TopologySpec, document, "test"))


def main(places: str, folder: str) -> None:
    handles = [ProcessHandle(*place) for place in json.loads(places)]
    with rack_testbed(
        changing_topology(loop=True), handles, RackPlacement(MACHINE_OF), RunOrder("a driver"), root=Path(folder)
    ) as testbed:
        assert testbed.changing is not None
        testbed.changing.begin()
        print("changing", flush=True)
        time.sleep(1000)


if __name__ == "__main__":
    main(*sys.argv[1:])

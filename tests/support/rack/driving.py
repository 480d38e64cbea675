"""A driver of two hosts on two machines, which waits when they are up.

Its arguments are those of the machines' handles, as JSON, the folder of its own claim, and what joins the machines.
"""

import json
import sys
from pathlib import Path

from tests.support.rack.machine_process import ProcessHandle
from wanbed.ground.strict_model import parse_model
from wanbed.testbed.network.topology import Topology, resolve_topology
from wanbed.testbed.network.topology_spec import TopologySpec
from wanbed.testbed.rack.machine_handle import RunOrder
from wanbed.testbed.rack.rack_testbed import RackPlacement, rack_testbed

MACHINE_OF = {"east-0": "space0", "west-0": "space1"}


def two_hosts(latency: str = "100us") -> Topology:
    datacenters = [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}]
    document = {"datacenters": datacenters, "wan": {"latency": latency}}
    return resolve_topology(parse_model(TopologySpec, document, "test"))


def main(places: str, folder: str, overlay: str) -> None:
    handles = [ProcessHandle(*place) for place in json.loads(places)]
    root = Path(folder)
    run = RunOrder("a driver", overlay, shaped=False)
    with rack_testbed(two_hosts(), handles, RackPlacement(MACHINE_OF), run, root=root) as testbed:
        running = [testbed.spawn(host, ["sleep", "1000"]) for host in MACHINE_OF]
        print("up", flush=True)
        running[0].wait()


if __name__ == "__main__":
    main(*sys.argv[1:])

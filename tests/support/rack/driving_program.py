"""A driver that runs a user's program over two machines, in the current folder, which it sends them.

Its arguments are the arguments of the machines' handles, as JSON, the folder of its own claim, and the program as JSON.
It prints how the trial failed, or what ranks printed.
"""

import json
import sys
from pathlib import Path
from typing import Any

from tests.support.rack.driving import MACHINE_OF
from tests.support.rack.machine_process import ProcessHandle
from wanbed.runner.emulation.running_trial import TrialSpec
from wanbed.runner.emulation.trial import run_trial
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.rack_runs.sent_programs import packed_programs, programs_of
from wanbed.runner.runs.faults import TrialError
from wanbed.testbed.rack.machine_handle import MachineLostError, RunOrder
from wanbed.testbed.rack.rack_testbed import RackPlacement, rack_testbed

TOPOLOGY = {
    # The machines may lack netem: nearly nothing is to be emulated.
    "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}],
    "wan": {"latency": "100us"},
}


def main(places: str, folder: str, program: str) -> None:
    handles = [ProcessHandle(*place) for place in json.loads(places)]
    for fault in faults_of(handles, Path(folder), [json.loads(program)]):
        print(fault)


def faults_of(handles: list[ProcessHandle], root: Path, programs: list[dict[str, Any]]) -> list[str]:
    """Return how the trial of each program failed, or, in JSON, what its ranks have printed."""
    variants = [{"name": f"number {number}", "program": program} for number, program in enumerate(programs)]
    document = {"topology": TOPOLOGY, "dilation": 1, "variants": variants}
    (point,) = parse_experiment(document, "exp.yaml", Path.cwd()).points()
    sent = packed_programs([program for _, program in programs_of([point])], root)
    for handle in handles:
        assert handle.call("receive_archive", sent.archive) == sent.digest
    said = []
    run = RunOrder("a driver", shaped=False)
    with rack_testbed(point.topology, handles, RackPlacement(MACHINE_OF), run, sent=sent, root=root) as testbed:
        for trial in point.trials():
            try:
                record = run_trial(testbed, TrialSpec(trial, point, 1.0, {}))
                said.append(json.dumps({name: path.read_text() for name, path in record.outputs.items()}))
            except (TrialError, MachineLostError) as fault:
                said.append(str(fault))
    return said


if __name__ == "__main__":
    main(*sys.argv[1:])

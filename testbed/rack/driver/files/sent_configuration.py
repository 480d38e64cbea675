"""Make what a machine needs to start a process that the driver has configured: its configuration, and named files."""

import json
from pathlib import Path

from wanbed.testbed.rack.driver.files.translation import (
    MachinePlace,
    input_path,
    named_configurations,
    named_inputs,
    translated,
)
from wanbed.testbed.rack.driver.rack_machine import RackMachine


def configuration_files(machine: RackMachine, configuration: Path, folder: Path) -> dict[str, bytes]:
    """Return the files for the lease's folder, by their paths there.

    These are the configuration, which is below the driver's ``folder``, those that its command names in turn, and the
    inputs that the machine does not have yet.
    """
    document, lease = json.loads(configuration.read_bytes()), machine.lease
    files: dict[str, bytes] = {}
    for named in named_configurations(document, folder):
        files |= configuration_files(machine, named, folder)
    for needed in named_inputs(document, folder):
        if (place := input_path(needed)) not in machine.inputs:
            files[place] = needed.read_bytes()
            machine.inputs.add(place)
    place_there = MachinePlace(folder, lease.folder, lease.module_parent, machine.clock.ahead_ns)
    content = json.dumps(translated(document, place_there), indent=1).encode()
    return {**files, str(configuration.relative_to(folder)): content}

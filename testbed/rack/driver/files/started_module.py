"""Start a Python module on a host of a machine: send what it is configured with, and bring back what it leaves."""

import os
from collections.abc import Mapping
from pathlib import Path

from wanbed.testbed.rack.driver.files.files_on_machines import FilesOnMachines
from wanbed.testbed.rack.driver.files.translation import MachinePlace, Translation
from wanbed.testbed.rack.driver.rack_machine import RackMachine
from wanbed.testbed.rack.driver.remote_process import RemoteProcess
from wanbed.testbed.rack.orders import ProgramOrder


def start_module_on(
    machine: RackMachine,
    host: str,
    module: str,
    arguments: list[str],
    output: int,
    *,
    folder: Path,
    environment: Mapping[str, str],
) -> RemoteProcess:
    """Run ``main(arguments)`` of a module on a host of ``machine``; ``folder`` is the driver's for the testbed.

    An argument that is a file below ``folder`` is a configuration: the machine gets it, translated, and the files that
    it names. When the process has ended, its output is written to the descriptor ``output``, and the files that it has
    left beside its configuration, named like it, are here where they are there.
    """
    configurations = [path for each in arguments if (path := Path(each)).is_relative_to(folder) and path.is_file()]
    place = MachinePlace(folder, machine.lease.folder, machine.lease.module_parent, machine.clock.ahead_ns)
    translation = Translation(place, machine.inputs)
    for path in configurations:
        translation.add(path)

    def relative(path: Path) -> str:
        return str(path.relative_to(folder))

    left = [relative(path.with_suffix(".*")) for path in configurations]
    program = ProgramOrder(
        module=module,
        arguments=tuple(relative(Path(each)) if Path(each) in configurations else each for each in arguments),
        environment=environment,
        files=translation.files,
    )
    # The caller closes its own.
    printed = os.fdopen(os.dup(output), "wb")
    number_of: list[int] = []

    def made(number: int) -> RemoteProcess:
        number_of.append(number)
        return RemoteProcess(number, machine)

    def bring_back(_: int) -> None:
        with printed:
            printed.write(machine.output(number_of[0], 0))
        sizes = {name: len(content) for name, content in translation.files.items()}
        FilesOnMachines([machine], folder, apart_from=sizes).take(left)

    return machine.start(host, program, made, bring_back)

"""Start a Python module on a host of a machine: send what it is configured with, and bring back what it leaves."""

import os
from collections.abc import Mapping
from pathlib import Path

from wanbed.testbed.rack.driver.files.mirrored_files import MirroredFiles
from wanbed.testbed.rack.driver.files.sent_configuration import configuration_files
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
    files: dict[str, bytes] = {}
    for path in configurations:
        files |= configuration_files(machine, path, folder)

    def relative(path: Path) -> str:
        return str(path.relative_to(folder))

    left = [relative(path.with_suffix(".*")) for path in configurations]
    program = ProgramOrder(
        module=module,
        arguments=tuple(relative(Path(each)) if Path(each) in configurations else each for each in arguments),
        environment=environment,
        files=files,
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
        sizes = {name: len(content) for name, content in files.items()}
        MirroredFiles([machine], folder, apart_from=sizes).take(left)

    return machine.start(host, program, made, bring_back)

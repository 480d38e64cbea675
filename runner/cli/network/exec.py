"""``wanbed exec``: run any unmodified program on an emulated host."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wanbed.ground.strict_model import InputError, prefixed
from wanbed.runner.cli.arguments import Clock, ExperimentFile, Overrides, SubstrateName, as_options, with_clock
from wanbed.runner.cli.exit_status import one_line_errors

if TYPE_CHECKING:
    from wanbed.testbed.network.topology import Topology

_NO_WAN = (
    "wanbed: NO WAN: between these hosts nothing is delayed, lost or limited, whatever the file says; "
    "what is measured here says nothing about a WAN"
)


def exec_(
    file: ExperimentFile,
    host: Annotated[str, typer.Argument(metavar="HOST", help="Where to run it, like east-0.")],
    command: Annotated[list[str], typer.Argument(metavar="-- CMD...", help="The program and its arguments.")],
    *,
    overrides: Overrides = None,
    clock: Clock = None,
    substrate: SubstrateName = "auto",
    also: Annotated[
        list[str] | None,
        typer.Option(metavar="'HOST CMD'", help="A program to start first, like 'west-0 iperf3 -s'."),
    ] = None,
    fresh: Annotated[bool, typer.Option(help="A network of its own even where this file's is up already.")] = False,
    no_wan: Annotated[
        bool, typer.Option("--no-wan", help="Hosts that nothing delays or limits: needs no netem, emulates no WAN.")
    ] = False,
) -> None:
    """Run a program on a host of the file's network, and pass its output and exit status through.

    If exactly this network is up already (for example in `wanbed shell`), the program joins it. Otherwise a network is
    brought up while the program runs. Hosts find each other by name. The program starts in the current folder, with
    this environment. Links that change begin to when the program starts, on a network that is up already when that
    came up. What programs of --also print goes to standard error, each line after its host's name; if one of them fails
    before the program has ended, so does the command.
    """
    with one_line_errors():
        from wanbed.runner.cli.network.host_commands import HostCommand, check_command, run_commands
        from wanbed.runner.cli.network.leftovers import report_leftovers
        from wanbed.runner.cli.user_namespace import enter_user_namespace
        from wanbed.runner.emulation.gpu_provisioning import provision_gpus
        from wanbed.runner.emulation.network_choice import check_namespaces, first_point, network_up, source_of
        from wanbed.runner.emulation.virtual.virtual_clock import wants_guest
        from wanbed.runner.experiment.experiment_document import ExperimentDocument
        from wanbed.testbed.hosts.host_programs import system_path
        from wanbed.testbed.hosts.joining import join_testbed
        from wanbed.testbed.rights.hosts_allowed import in_user_namespace

        written = with_clock(overrides, clock)
        point = first_point(ExperimentDocument.read(file, written))
        main, others = HostCommand(host, command), [HostCommand.parse(text) for text in also or []]
        folder = _current_folder()
        os.environ["PATH"] = path = system_path()
        for each in (main, *others):
            _check_host(file, point.topology, each.host)
            check_command(each, path)
        check_namespaces("exec", substrate)
        if no_wan:
            _check_no_wan(point.spec.clock, substrate)
        if wants_guest(point.spec, substrate):
            raise typer.Exit(_exec_inside(file, host, command, written, also or []))
        joined = None if fresh or no_wan or in_user_namespace() else join_testbed(source_of(file), point.topology)
        if joined is not None:
            print(f"wanbed: on testbed {joined.identifier}, which is up already", file=sys.stderr)
            with joined.programs_end_here():
                status = run_commands(joined.spawn, main, others, folder)
        else:
            # Only now: a testbed that is up can be joined from outside its user namespace, not from inside another.
            enter_user_namespace()
            if no_wan:
                print(_NO_WAN, file=sys.stderr)
            report_leftovers()
            with prefixed(f"{file}: "):
                gpus = provision_gpus(point)
            with network_up(point.topology, substrate, file, gpus=gpus, shaped=not no_wan) as testbed:
                begin = (lambda: None) if no_wan or testbed.changing is None else testbed.changing.begin
                status = run_commands(testbed.spawn, main, others, folder, begin=begin)
    raise typer.Exit(status)


def _check_no_wan(clock: str, substrate: str) -> None:
    if substrate != "auto":
        raise InputError("--no-wan: no substrate adds impairments then: leave --substrate out")
    if clock == "virtual":
        raise InputError("--no-wan: what nothing limits takes no virtual time: leave it out, or give --clock real")


def _exec_inside(file: Path, host: str, command: list[str], overrides: list[str], also: list[str]) -> int:
    from wanbed.runner.emulation.virtual.virtual_clock import COMMAND, enter_virtual_time
    from wanbed.testbed.virtual_time.kernel.kernel_cache import virtual_kernel

    kernel = virtual_kernel()
    arguments = ["exec", str(file), *as_options(overrides)]
    arguments += [*(f"--also={other}" for other in also), host, "--", *command]
    return enter_virtual_time(kernel, COMMAND, arguments, files=[file], standard_input=_whole_input())


def _whole_input() -> bytes | None:
    """Return all of standard input for the program, None at a terminal: virtual time does not wait for a user."""
    return None if sys.stdin is None or sys.stdin.isatty() else sys.stdin.buffer.read()


def _check_host(file: Path, topology: "Topology", name: str) -> None:
    with prefixed(f"{file}: "):
        topology.host(name)


def _current_folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise InputError("the current folder has been removed: change to another") from None

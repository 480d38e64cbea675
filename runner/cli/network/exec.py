"""``wanbed exec``: run any unmodified program on an emulated host."""

import shlex
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Unpack

import typer

from ground.strict_model import InputError, prefixed
from runner.cli.arguments import Clock, ExperimentFile, Overrides, SubstrateName, as_options, with_clock
from runner.cli.exit_status import one_line_errors
from runner.emulation.gpu_provisioning import provision_gpus
from runner.emulation.network_choice import first_point, network_up, source_of
from runner.emulation.virtual.virtual_clock import COMMAND, enter_virtual_time, wants_guest
from testbed.hosts.host import SpawnOptions
from testbed.hosts.joining import JoinedTestbed, join_testbed
from testbed.network.topology import Topology
from testbed.virtual_time.kernel.kernel_cache import virtual_kernel

if TYPE_CHECKING:
    from testbed.testbed import Testbed

_SIGNALLED = 128
_NO_WAN = (
    "wanbed: NO WAN: between these hosts nothing is delayed, lost or limited, whatever the file says; "
    "what is measured here says nothing about a WAN"
)
_SETTLED_S = 0.2
"""A program of --also that fails within this time counts as not started."""


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
        typer.Option(metavar="'HOST CMD'", help="A program to start first on another host, like 'west-0 iperf3 -s'."),
    ] = None,
    fresh: Annotated[bool, typer.Option(help="A network of its own even where this file's is up already.")] = False,
    no_wan: Annotated[
        bool, typer.Option("--no-wan", help="Hosts that nothing delays or limits: needs no netem, emulates no WAN.")
    ] = False,
) -> None:
    """Run a program on a host of the file's network, and pass its output and exit status through.

    If exactly this network is up already (for example in `wanbed shell`), the program joins it. Otherwise a network is
    brought up while the program runs. Hosts find each other by name.
    """
    with one_line_errors():
        written = with_clock(overrides, clock)
        point = first_point(file, written)
        others = [_other(text) for text in also or []]
        _check_hosts(file, point.topology, [host, *(other for other, _ in others)])
        if no_wan:
            _check_no_wan(point.spec.clock, substrate)
            print(_NO_WAN, file=sys.stderr)
        if wants_guest(point.spec, substrate):
            raise typer.Exit(_exec_inside(file, host, command, written, also or []))
        joined = None if fresh or no_wan else join_testbed(source_of(file), point.topology)
        if joined is not None:
            print(f"wanbed: on testbed {joined.identifier}, which is up already", file=sys.stderr)
            status = _run(joined, host, command, others)
        else:
            with prefixed(f"{file}: "):
                gpus = provision_gpus(point)
            with network_up(point.topology, substrate, file, gpus=gpus, shaped=not no_wan) as testbed:
                status = _run(testbed, host, command, others)
    raise typer.Exit(status)


def _check_no_wan(clock: str, substrate: str) -> None:
    if substrate != "auto":
        raise InputError("--no-wan: no substrate adds impairments then: leave --substrate out")
    if clock == "virtual":
        raise InputError("--no-wan: what nothing limits takes no virtual time: leave it out, or give --clock real")


def _exec_inside(file: Path, host: str, command: list[str], overrides: list[str], also: list[str]) -> int:
    kernel = virtual_kernel()
    arguments = ["exec", str(file), *as_options(overrides)]
    arguments += [*(f"--also={other}" for other in also), host, "--", *command]
    return enter_virtual_time(kernel, COMMAND, arguments, files=[file], standard_input=_whole_input())


def _whole_input() -> bytes | None:
    """Return all of standard input for the program, None at a terminal: virtual time does not wait for a user."""
    return None if sys.stdin is None or sys.stdin.isatty() else sys.stdin.buffer.read()


def _check_hosts(file: Path, topology: Topology, names: list[str]) -> None:
    for name in names:
        try:
            topology.host(name)
        except InputError as unknown:
            raise InputError(f"{file}: {unknown}") from None


def _other(text: str) -> tuple[str, list[str]]:
    try:
        words = shlex.split(text)
    except ValueError as fault:
        raise InputError(f"--also {text!r}: {fault}") from None
    if len(words) < 2:
        raise InputError(f"--also {text!r}: give a host and a program, like 'west-0 iperf3 -s'")
    return words[0], words[1:]


def _run(testbed: "Testbed | JoinedTestbed", host: str, command: list[str], others: list[tuple[str, list[str]]]) -> int:
    with ExitStack() as running:

        def start(where: str, program: list[str], **popen: Unpack[SpawnOptions]) -> "subprocess.Popen[Any]":
            process = running.enter_context(testbed.spawn(where, program, **popen))
            running.callback(process.kill)
            return process

        for other, program in others:
            process = start(other, program, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            with suppress(subprocess.TimeoutExpired):
                if failed := process.wait(_SETTLED_S):
                    raise InputError(f"--also '{other} {shlex.join(program)}': it ended at once with status {failed}")
        status = start(host, command).wait()
    return _SIGNALLED - status if status < 0 else status

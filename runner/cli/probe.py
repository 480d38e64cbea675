"""``wanbed probe``: send UDP packets over a path and log when each arrived, for ``wanbed learn-link``."""

import json
from pathlib import Path
from typing import Annotated

import typer

from wanbed.ground.errors import InputError
from wanbed.runner.cli.arguments import AsJson, path_of
from wanbed.runner.cli.exit_status import one_line_errors

_PORT = 9753


def probe(
    host: Annotated[str | None, typer.Argument(metavar="HOST", help="Where wanbed probe --receive runs.")] = None,
    *,
    receive: Annotated[bool, typer.Option("--receive", help="Be the receiving end of one probe, then end.")] = False,
    output: Annotated[
        Path, typer.Option("--output", metavar="LOG", parser=path_of("--output"), help="The log to write.")
    ] = Path("probe.csv"),
    port: Annotated[int, typer.Option(metavar="N", min=1, max=65535, help="UDP and TCP port of the receiver.")] = _PORT,
    seconds: Annotated[float, typer.Option(metavar="S", min=1, max=86400, help="How long to send.")] = 30,
    packets_per_s: Annotated[
        float, typer.Option(metavar="N", min=1, max=20_000, help="Single packets a second, at random times.")
    ] = 200,
    size: Annotated[
        int, typer.Option(metavar="BYTES", min=80, max=1514, help="Of a packet, its headers and Ethernet's included.")
    ] = 1250,
    train: Annotated[
        int, typer.Option(metavar="N", min=0, max=100_000, help="Packets of a train, sent at once; 0: no trains.")
    ] = 40,
    train_every: Annotated[
        float, typer.Option(metavar="S", min=0.01, max=86400, help="Seconds from one train to the next.")
    ] = 0.5,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Of the random times.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Send UDP packets to a host and log when each was sent and arrived, for `wanbed learn-link`.

    Both ends are programs for `wanbed exec`: --also 'west-0 wanbed probe --receive' beside wanbed probe west-0. Trains
    show the bottleneck's rate. They show its buffer only if they are longer than it.
    """
    with one_line_errors():
        if receive == (host is not None):
            raise InputError("HOST: give the host to send to, or --receive on the other end, one of both")
        # Imported here to keep other commands fast.
        from wanbed.runner.learnt_links.probe import ProbePattern, receive_probe, send_probe

        if host is None:
            try:
                count = receive_probe(port)
            except OSError as fault:
                raise InputError(f"--port {port}: {fault.strerror}: give another to both ends") from None
            print(json.dumps({"arrived": count}) if as_json else f"{count} packets arrived")
            return
        pattern = ProbePattern(seconds, packets_per_s, size, train, train_every, seed)
        counted = send_probe(host, port, pattern, output)
        if as_json:
            print(json.dumps({"log": str(output), "sent": counted.sent, "arrived": counted.arrived}, indent=2))
        else:
            print(f"{counted.arrived} of {counted.sent} packets arrived; log: {output}")

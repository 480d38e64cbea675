"""Define the command ``wanbed`` and its subcommands."""

from importlib import metadata
from typing import Annotated

import typer

from wanbed.runner.cli.lazy_commands import LazyCommand, lazy_group, stand_in

COMMANDS = {
    "doctor": LazyCommand(
        "wanbed.runner.cli.network.doctor:doctor", "Report what this machine can do, and what to install for the rest."
    ),
    "compile": LazyCommand(
        "wanbed.runner.cli.runs.compile:compile_",
        "Compile the simulator's hot modules into your cache: same results, sooner.",
    ),
    "calibrate": LazyCommand(
        "wanbed.runner.cli.network.calibrate:calibrate",
        "Build the network of every sweep point, measure every link, and print configured against measured.",
    ),
    "exec": LazyCommand(
        "wanbed.runner.cli.network.exec:exec_",
        "Run a program on a host of the file's network, and pass its output and exit status through.",
        {"ignore_unknown_options": True},
    ),
    "probe": LazyCommand(
        "wanbed.runner.cli.network.probe:probe",
        "Send UDP packets to a host and log when each was sent and arrived, for `wanbed learn-link`.",
    ),
    "learn-link": LazyCommand(
        "wanbed.runner.cli.network.learn_link:learn_link",
        "Fit base delay, bottleneck rate, buffer and cross traffic to a log of packets, as a trace that links replay.",
    ),
    "shell": LazyCommand(
        "wanbed.runner.cli.network.shell:shell",
        "Bring up the file's network and open Mininet's prompt on it, for commands like `east-0 ping -c 3 west-0`.",
    ),
    "run": LazyCommand(
        "wanbed.runner.cli.runs.run:run",
        "Run the sweep: calibrate every link, run every trial, and write the run folder and its report.",
    ),
    "plan": LazyCommand(
        "wanbed.runner.cli.runs.plan:plan_",
        "Choose the datacenters, the number of DP-cells and the placement of stages with the most tokens a second.",
    ),
    "profile": LazyCommand(
        "wanbed.runner.cli.runs.profile:profile_",
        "Measure a compute profile of models for training, or a prefill profile of one inference model.",
    ),
    "simulate": LazyCommand(
        "wanbed.runner.cli.runs.simulate:simulate",
        "Simulate the sweep on all cores, with any engine in the file, and write the run folder and its report.",
    ),
    "schema": LazyCommand(
        "wanbed.runner.cli.runs.schema:schema",
        "Print the experiment file's JSON schema, by which an editor completes and checks.",
    ),
    "report": LazyCommand(
        "wanbed.runner.cli.results.report:report",
        "Write the report of one or several runs as one self-contained HTML file, or its tables, and figures of it.",
    ),
    "trace": LazyCommand(
        "wanbed.runner.cli.results.trace:trace",
        "Write a trace of the run, all trials one after the other unless chosen, for ui.perfetto.dev to open.",
    ),
    "compare": LazyCommand(
        "wanbed.runner.cli.results.compare:compare",
        "Compare B's iteration times with A's at each sweep point for each variant, and report whether B regressed.",
    ),
    "validate": LazyCommand(
        "wanbed.runner.cli.results.validate:validate",
        "Compare the simulator with golden values, closed forms and, with RUN, the iteration times of an emulated run.",
    ),
    "clean": LazyCommand(
        "wanbed.runner.cli.network.clean:clean",
        "Remove what killed runs left on this machine, by recorded identifiers.",
    ),
    "examples": LazyCommand(
        "wanbed.runner.cli.runs.examples:examples", "List the shipped experiments, or copy one of them."
    ),
    "runs": LazyCommand("wanbed.runner.cli.runs.runs:runs", "List the runs in a folder, or remove some of them."),
}

app = typer.Typer(
    name="wanbed",
    cls=lazy_group(COMMANDS),
    help="Datacenters emulated on real netem or simulated, and what trains across them. "
    "Exit status: 0 done, 1 outside tolerance or regressed, 2 bad usage or input, 3 not comparable, 4 no data, "
    "5 the machine lacks something named. WANBED_DEBUG=1 shows where an error comes from.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for _name, _command in COMMANDS.items():
    app.command(_name, short_help=_command.summary)(stand_in)


def _print_version(asked: bool) -> None:
    if asked:
        try:
            print(f"wanbed {metadata.version('wanbed')}")
        except metadata.PackageNotFoundError:
            print("wanbed, run from its source without being installed: git describes which")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Show the version and exit.")
    ] = False,
) -> None:
    """Handle the options that stand before the command."""


def main() -> None:
    """Run the command. Help texts always call it ``wanbed``."""
    app(prog_name="wanbed")


if __name__ == "__main__":
    main()

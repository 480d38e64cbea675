"""Define the command ``wanbed`` and its subcommands.

The module of a subcommand is loaded when the subcommand is called, so that help and completion load none of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module, metadata
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup


@dataclass(frozen=True)
class LazyCommand:
    """A command: its function as ``module:function``, the first sentence of its docstring, and click's settings.

    ``computes`` is True if it starts no program of a user's, to which ``leave_cores`` would come down.
    """

    function: str
    summary: str
    settings: dict[str, Any] = field(default_factory=dict)
    computes: bool = False

    def load(self, name: str) -> Any:
        """Import the command's module, and return the command as click knows it."""
        from wanbed.runner.cli.exit_status import fit_address_space, leave_cores, one_line_errors

        # What a command imports may not fit into a limited address space.
        with one_line_errors():
            fit_address_space()
        if self.computes:
            leave_cores()
        module, _, function = self.function.partition(":")
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command(name, context_settings=self.settings)(getattr(import_module(module), function))
        return typer.main.get_command(app)


def _lazy_group(commands: Mapping[str, LazyCommand]) -> type[TyperGroup]:
    """Return the class of a group in which each of ``commands`` replaces its stand-in once it is called."""

    class LazyGroup(TyperGroup):
        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            name, found, rest = super().resolve_command(ctx, args)
            return name, commands[name].load(name) if name else found, rest

    return LazyGroup


def _stand_in() -> NoReturn:
    """Hold a command's place in lists; the group calls the command itself."""
    raise NotImplementedError("a lazy group calls its commands, not their stand-ins")


COMMANDS = {
    "doctor": LazyCommand(
        "wanbed.runner.cli.doctor:doctor", "Report what this machine can do, and what to install for the rest."
    ),
    "compile": LazyCommand(
        "wanbed.runner.cli.compile:compile_",
        "Compile the simulator's hot modules into your cache: same results, sooner.",
    ),
    "calibrate": LazyCommand(
        "wanbed.runner.cli.calibrate:calibrate",
        "Build the network of every sweep point, measure every link, and print configured against measured.",
    ),
    "exec": LazyCommand(
        "wanbed.runner.cli.exec:exec_",
        "Run a program on a host of the file's network, and pass its output and exit status through.",
        {"ignore_unknown_options": True},
    ),
    "probe": LazyCommand(
        "wanbed.runner.cli.probe:probe",
        "Send UDP packets to a host and log when each was sent and arrived, for `wanbed learn-link`.",
    ),
    "learn-link": LazyCommand(
        "wanbed.runner.cli.learn_link:learn_link",
        "Fit base delay, bottleneck rate, buffer and cross traffic to a log of packets, as a trace that links replay.",
        computes=True,
    ),
    "shell": LazyCommand(
        "wanbed.runner.cli.shell:shell",
        "Bring up the file's network and open Mininet's prompt on it, for commands like `east-0 ping -c 3 west-0`.",
    ),
    "run": LazyCommand(
        "wanbed.runner.cli.run:run",
        "Run the sweep: calibrate every link, run every trial, and write the run folder and its report.",
    ),
    "plan": LazyCommand(
        "wanbed.runner.cli.plan:plan_",
        "Choose the datacenters, the number of DP-cells and the placement of stages with the most tokens a second.",
        computes=True,
    ),
    "profile": LazyCommand(
        "wanbed.runner.cli.profile:profile_",
        "Measure a compute profile of models for training, or a prefill profile of one inference model.",
    ),
    "simulate": LazyCommand(
        "wanbed.runner.cli.simulate:simulate",
        "Simulate the sweep on all cores, with any engine in the file, and write the run folder and its report.",
        computes=True,
    ),
    "schema": LazyCommand(
        "wanbed.runner.cli.schema:schema",
        "Print the experiment file's JSON schema, by which an editor completes and checks.",
    ),
    "report": LazyCommand(
        "wanbed.runner.cli.report:report",
        "Write the report of one or several runs as one self-contained HTML file, or its tables, and figures of it.",
        computes=True,
    ),
    "trace": LazyCommand(
        "wanbed.runner.cli.trace:trace",
        "Write a trace of the run, all trials one after the other unless chosen, for ui.perfetto.dev to open.",
        computes=True,
    ),
    "compare": LazyCommand(
        "wanbed.runner.cli.compare:compare",
        "Compare B's iteration times with A's at each sweep point for each variant, and report whether B regressed.",
        computes=True,
    ),
    "validate": LazyCommand(
        "wanbed.runner.cli.validate:validate",
        "Compare the simulator with golden values, closed forms and, with RUN, the iteration times of an emulated run.",
    ),
    "clean": LazyCommand(
        "wanbed.runner.cli.clean:clean",
        "Remove what killed runs left on this machine, by recorded identifiers.",
    ),
    "examples": LazyCommand(
        "wanbed.runner.cli.examples:examples", "List the shipped experiments, or copy one of them."
    ),
    "runs": LazyCommand("wanbed.runner.cli.runs:runs", "List the runs in a folder, or remove some of them."),
}

app = typer.Typer(
    name="wanbed",
    cls=_lazy_group(COMMANDS),
    help="Datacenters emulated on real netem or simulated, and what trains across them. "
    "Exit status: 0 done, 1 outside tolerance or regressed, 2 bad usage or input, 3 not comparable, 4 no data, "
    "5 the machine lacks something named. WANBED_DEBUG=1 shows where an error comes from.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

for _name, _command in COMMANDS.items():
    app.command(_name, short_help=_command.summary)(_stand_in)


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

"""Define the command ``wanbed`` and its subcommands."""

import typer

from runner.cli.network.calibrate import calibrate
from runner.cli.network.clean import clean
from runner.cli.network.doctor import doctor
from runner.cli.network.exec import exec_
from runner.cli.network.shell import shell
from runner.cli.results.compare import compare
from runner.cli.results.report import report
from runner.cli.results.trace import trace
from runner.cli.results.validate import validate
from runner.cli.runs.plan import plan_
from runner.cli.runs.profile import profile_
from runner.cli.runs.run import run
from runner.cli.runs.schema import schema
from runner.cli.runs.simulate import simulate

app = typer.Typer(
    name="wanbed",
    help="Datacenters emulated on real netem or simulated, and what trains across them. "
    "Exit status: 0 done, 1 outside tolerance or regressed, 2 bad usage or input, 3 not comparable, 4 no data, "
    "5 the machine lacks something named.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(doctor)
app.command()(calibrate)
app.command("exec", context_settings={"ignore_unknown_options": True})(exec_)
app.command()(shell)
app.command()(run)
app.command("plan")(plan_)
app.command("profile")(profile_)
app.command()(simulate)
app.command()(schema)
app.command()(report)
app.command()(trace)
app.command()(compare)
app.command()(validate)
app.command()(clean)


def main() -> None:
    """Run the command. Help texts always call it ``wanbed``."""
    app(prog_name="wanbed")


if __name__ == "__main__":
    main()

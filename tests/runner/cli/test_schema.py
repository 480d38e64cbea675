"""``wanbed schema`` prints the schema that is shipped."""

from typer.testing import CliRunner

from wanbed.runner.cli.command_line import app
from wanbed.runner.experiment_reference.__main__ import SCHEMA


def test_the_shipped_schema_is_printed() -> None:
    done = CliRunner().invoke(app, ["schema"])
    assert done.exit_code == 0
    assert done.stdout == SCHEMA.read_text(encoding="utf-8")

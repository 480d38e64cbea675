"""``wanbed schema`` prints the schema that is shipped."""

from tests.support.runner.commands_here import wanbed
from wanbed.runner.experiment_reference.__main__ import SCHEMA


def test_the_shipped_schema_is_printed() -> None:
    done = wanbed("schema")
    assert done.exit_code == 0
    assert done.stdout == SCHEMA.read_text(encoding="utf-8")

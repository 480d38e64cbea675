"""``wanbed schema`` prints the schema that is shipped."""

from tests.support.runner.commands_here import called
from wanbed.runner.experiment_reference.__main__ import SCHEMA


def test_the_shipped_schema_is_printed() -> None:
    assert called("schema").stdout == SCHEMA.read_text(encoding="utf-8")

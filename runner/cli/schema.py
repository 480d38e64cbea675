"""``wanbed schema``: print the JSON schema of the experiment file."""

from wanbed.runner.cli.exit_status import one_line_errors


def schema() -> None:
    """Print the experiment file's JSON schema, by which an editor completes and checks.

    Keep it beside your experiments (wanbed schema > experiment.schema.json) and begin them with the line
    "# yaml-language-server: $schema=experiment.schema.json". It offers the names of what is installed here.
    """
    # The schema needs every section of the file and takes a while to load, which no other command has to wait for.
    from wanbed.runner.experiment_reference.json_schema import schema_text

    with one_line_errors():
        print(schema_text(), end="")

"""Check that the shipped JSON schema and the reference page are those of the fields' descriptions.

``python -m wanbed.runner.experiment_reference --write`` writes them again after a field or its description has changed.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from wanbed.runner.experiment_reference.field_tables import with_fields
from wanbed.runner.experiment_reference.json_schema import schema_text

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = ROOT / "runner" / "experiments" / "experiment.schema.json"

PAGE = ROOT / "docs" / "experiment-file.md"

_FILES: dict[Path, Callable[[str], str]] = {SCHEMA: lambda _: schema_text(), PAGE: with_fields}
"""Each generated file, and what it should hold by what it holds."""


def main(arguments: list[str] | None = None) -> int:
    """Write or check the files; return the exit status: 1 if one does not agree with the descriptions, else 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="bring the files up to date")
    write = parser.parse_args(arguments).write
    behind = 0
    for path, current in _FILES.items():
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        wanted = current(text)
        if write:
            path.write_text(wanted, encoding="utf-8")
        elif wanted != text:
            behind = 1
            print(f"{path}: is not made from the fields as they are, bring it up to date with --write", file=sys.stderr)
    return behind


if __name__ == "__main__":
    sys.exit(main())

"""Reduce every shipped experiment that simulates to digests: of its configuration, its spans, and its report."""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from typer.testing import CliRunner

import wanbed
from wanbed.ground.errors import InputError
from wanbed.runner.cli.command_line import app

EXPERIMENTS = Path("runner/experiments")
FORMATS = ("html", "md", "csv", "json")
_CHANGES = re.compile(
    rb'(created|ended)(</dt><dd>|": ")[0-9T:+-]+|"path": "[^"]*"|[a-z0-9-]+-\d{8}T\d{6}Z-[0-9a-f]{8}'
    rb"|<dt>(host|measuring programs|versions|git revision)</dt><dd>[^<]*"
)
"""When and where a run was made, on which machine and by which revision, and its folder's name."""


def shipped() -> list[Path]:
    """Return the files of all shipped experiments that have no program of their own."""
    return sorted([*EXPERIMENTS.glob("*.yaml"), *EXPERIMENTS.glob("paper/*.yaml")])


def simulated_bytes(file: Path, runs: Path) -> Iterator[tuple[str, str]]:
    """Simulate an experiment, and yield the name and the digest of each of its outputs.

    An experiment that is not simulated has its refusal.
    """
    name = file.relative_to(EXPERIMENTS).with_suffix("").as_posix()
    try:
        run = wanbed.simulate(file, runs=runs)
    except InputError as refusal:
        yield f"{name} refusal", str(refusal)
        return
    yield f"{name} configuration", run.manifest["config_hash"]
    spans = hashlib.sha256()
    for table in sorted(run.path.glob("trials/**/spans.parquet")):
        spans.update(pd.util.hash_pandas_object(pd.read_parquet(table)).to_numpy().tobytes())
    yield f"{name} spans", spans.hexdigest()
    for kind in FORMATS:
        output = runs / f"{run.path.name}.{kind}"
        printed = CliRunner().invoke(app, ["report", str(run.path), "--format", kind, "--output", str(output)])
        assert printed.exit_code == 0, printed.output
        yield f"{name} {kind}", hashlib.sha256(_CHANGES.sub(b"", output.read_bytes())).hexdigest()

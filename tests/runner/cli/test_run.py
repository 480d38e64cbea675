from pathlib import Path

import pytest

from tests.support.refused import refused
from wanbed.ground.errors import InputError
from wanbed.runner.cli.run import with_engine
from wanbed.runner.experiment.experiment_document import ExperimentDocument

TOPOLOGY = "topology: {datacenters: [{name: east, hosts: 1}, {name: west, hosts: 1}]}\n"


def file_of(tmp_path: Path, engine: str) -> Path:
    path = tmp_path / "two.yaml"
    path.write_text(f"{TOPOLOGY}engine: {engine}\n")
    return path


def engine_after(path: Path, rack: str | None, *others: str, dry_run: bool = False) -> str:
    document = with_engine(ExperimentDocument.read(path), path, rack, others=others, dry_run=dry_run)
    return f"{document.fields['engine']}{document.source.removeprefix(str(path))}"


def test_the_address_of_a_rack_decides_the_engine(tmp_path: Path) -> None:
    assert engine_after(file_of(tmp_path, "emulate"), "head:6379", "--overlay") == "rack --set engine=rack"
    assert engine_after(file_of(tmp_path, "rack"), "head:6379") == "rack"
    assert engine_after(file_of(tmp_path, "emulate"), None) == "emulate"


def test_a_file_for_a_rack_wants_its_address_unless_nothing_is_run(tmp_path: Path) -> None:
    path = file_of(tmp_path, "rack")
    assert engine_after(path, None, dry_run=True) == "rack"
    line = refused(lambda: engine_after(path, None))
    assert line == (
        f"{path}: engine: rack wants the machines' address: give --rack HOST:PORT of a Ray cluster's head, or --engine "
        "emulate"
    )


def test_options_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--hosts-per-machine: only a run over a rack has it"):
        engine_after(file_of(tmp_path, "emulate"), None, "--hosts-per-machine")
    with pytest.raises(InputError, match="simulates: call `wanbed simulate --rack`"):
        engine_after(file_of(tmp_path, "simulate"), "head:6379")

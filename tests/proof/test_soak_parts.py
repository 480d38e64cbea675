"""Each package and each test file belongs to one part of the soak; what changed or is oldest is due first."""

from pathlib import Path

from tests.proof.soak_parts import (
    CUT_OFF,
    PARTS,
    PASSED,
    ROOT,
    Entry,
    add_entry,
    due_parts,
    files_of,
    part_of,
    read_ledger,
)

PACKAGES = ("flow", "ground", "netem_profiles", "results", "runner", "studies", "testbed", "wanbed", "workloads")


def entry(part: str, outcome: str = PASSED) -> Entry:
    return Entry("2026-11-27", "0123456789ab", part, outcome)


def test_there_are_eight_parts_and_each_has_tests() -> None:
    assert len({part.name for part in PARTS}) == 8
    assert [part.name for part in PARTS if not files_of(part)] == []


def test_every_source_and_every_test_belongs_to_a_part() -> None:
    sources = [file for package in PACKAGES for file in (ROOT / package).rglob("*.py")]
    files = [*sources, *(ROOT / "tests").rglob("test_*.py")]
    assert [file for file in files if part_of(file.relative_to(ROOT).as_posix()) is None] == []


def test_every_folder_that_a_part_names_is_there() -> None:
    named = {folder for part in PARTS for folder in (*part.packages, *part.tests)}
    assert [folder for folder in named if not (ROOT / folder).is_dir()] == []


def test_a_file_belongs_to_the_nearest_folder_that_is_named() -> None:
    paths = {
        "testbed/network/topology.py": "links",
        "testbed/relay/relay.py": "hosts",
        "tests/testbed/network/test_topology.py": "links",
        "tests/system/rack/ray/test_rack_on_ray.py": "ray",
        "tests/system/rack/test_faults_on_rack.py": "rack",
        "runner/rack_runs/cluster.py": "ray",
        "runner/cli/run.py": "commands",
        "tests/test_installation.py": "commands",
    }
    assert {path: part.name if (part := part_of(path)) else None for path in paths} == paths


def test_what_changed_is_due_the_oldest_first_then_the_eighth_that_ran_least_recently() -> None:
    ledger = [entry(part.name) for part in PARTS]
    assert [part.name for part in due_parts(ledger, ())] == ["links"]
    assert [part.name for part in due_parts(ledger, ("ray", "hosts"))] == ["hosts", "ray", "links"]


def test_a_part_that_was_cut_off_has_had_its_turn() -> None:
    ledger = [*(entry(part.name) for part in PARTS), entry("links", CUT_OFF)]
    assert [part.name for part in due_parts(ledger, ())] == ["hosts"]


def test_successive_runs_take_one_eighth_after_another() -> None:
    ledger: list[Entry] = []
    for _ in range(len(PARTS)):
        (due,) = due_parts(ledger, ())
        ledger.append(entry(due.name))
    assert [each.part for each in ledger] == [part.name for part in PARTS]


def test_the_ledger_reads_back_what_was_added(tmp_path: Path) -> None:
    file = tmp_path / "ledger.csv"
    file.write_text("date,revision,part,outcome\n")
    add_entry(entry("ray", CUT_OFF), file)
    add_entry(entry("rack"), file)
    assert read_ledger(file) == [entry("ray", CUT_OFF), entry("rack")]

from pathlib import Path

import pytest

from ground.strict_model import InputError
from testbed.rack.lease.files import LeaseFiles


@pytest.fixture
def files(tmp_path: Path) -> LeaseFiles:
    folder = tmp_path / "lease"
    folder.mkdir()
    return LeaseFiles(folder)


def test_what_was_written_is_taken_once(files: LeaseFiles) -> None:
    files.write({"trial/rank-3.json": b"{}", "trial/rank-3.spans": b"spans", "trial/rank-31.spans": b"other"})
    assert files.path("trial/rank-3.json").stat().st_mode & 0o777 == 0o600
    assert files.take(["trial/rank-3.*"]) == {"trial/rank-3.json": b"{}", "trial/rank-3.spans": b"spans"}
    assert files.take(["trial/*"]) == {"trial/rank-31.spans": b"other"}


@pytest.mark.parametrize("path", ["../other", "/etc/passwd", "trial/../../other"])
def test_a_path_out_of_the_lease_is_refused(files: LeaseFiles, path: str) -> None:
    with pytest.raises(InputError, match=r"leads out of the lease's folder, give a path below it$"):
        files.write({path: b""})
    with pytest.raises(InputError, match=r"leads out"):
        files.take([path])


def test_a_link_that_a_program_has_made_leads_nowhere_else(files: LeaseFiles, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    files.path("out").symlink_to(tmp_path / "outside")
    with pytest.raises(InputError, match=r"leads out"):
        files.write({"out/file": b""})
    (files.path("x").parent / "passwords").symlink_to("/etc/passwd")
    assert files.take(["pass*"]) == {}

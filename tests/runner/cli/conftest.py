from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def _nothing_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands report what killed runs left on this machine; here there is nothing."""
    monkeypatch.setattr("wanbed.testbed.claims.cleaning.leftovers", list)

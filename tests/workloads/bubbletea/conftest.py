"""Public traces and times, which are not in the repository."""

import os
from pathlib import Path

import pytest


@pytest.fixture
def public_data() -> Path:
    folder = os.environ.get("WANBED_DATA")
    if not folder:
        pytest.skip("WANBED_DATA names no folder with the public prefill_traces/ and prefill_times/")
    return Path(folder)

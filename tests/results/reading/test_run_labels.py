from pathlib import Path

import pandas as pd
import pytest

from wanbed.results.reading.run import Run
from wanbed.results.reading.run_labels import run_labels


def run(name: str, folder: str = "", engine: str = "emulate") -> Run:
    nothing = pd.DataFrame()
    manifest = {"name": name, "engine": engine}
    path = Path("runs") / (folder or f"{name}-20260102T030405Z-c0ffeec0")
    return Run(path, manifest, (), nothing, nothing, nothing, nothing, nothing, nothing, nothing)


LATER, NEXT_DAY = "a-20260102T090405Z-c0ffeec0", "a-20260103T030405Z-c0ffeec0"


@pytest.mark.parametrize(
    ("runs", "labels"),
    [
        ([run("a")], ["a"]),
        ([run("a"), run("b")], ["a", "b"]),
        ([run("a"), run("a", LATER)], ["030405Z", "090405Z"]),
        ([run("a"), run("a", NEXT_DAY)], ["20260102T030405Z", "20260103T030405Z"]),
        ([run("a"), run("a", LATER), run("b")], ["a, 030405Z", "a, 090405Z", "b"]),
        ([run("a", "before"), run("a", "after")], ["before", "after"]),
        ([run("a"), run("a", engine="simulate")], ["a, emulated", "a, simulated"]),
        (
            [run("a"), run("a", LATER), run("a", engine="simulate")],
            ["a, emulated, 030405Z", "a, emulated, 090405Z", "a, simulated"],
        ),
        ([run("a"), run("a")], ["a, #1", "a, #2"]),
        ([run("a", "same"), run("a", "same"), run("a", LATER)], ["a, same, #1", "a, same, #2", "a, 090405Z"]),
    ],
)
def test_runs_have_the_shortest_unique_labels(runs: list[Run], labels: list[str]) -> None:
    assert run_labels(runs) == labels

"""The code of docs/python.md runs as one script, as a reader would paste it together."""

import os
import subprocess
import sys
from pathlib import Path

import wanbed
from tests.docs.pages import DOCS, blocks

PAGE = DOCS / "python.md"
ROOT = DOCS.parent


def test_the_page_runs_from_top_to_bottom(tmp_path: Path) -> None:
    script = []
    for block in blocks(PAGE, "python"):
        first = block.splitlines()[0]
        if first.startswith("# ") and first.endswith(".py"):
            (tmp_path / first.removeprefix("# ")).write_text(block, encoding="utf-8")
        else:
            script.append(block)
    (tmp_path / "page.py").write_text("\n".join(script), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"}
    done = subprocess.run(
        [sys.executable, "page.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "<Experiment 'pacific': 9 sweep points, 2 variants> {'topology.links.0.latency': '50ms'" in done.stdout
    lines = done.stdout.splitlines()
    heading = next(position for position, line in enumerate(lines) if line.split()[1:] == ["1Gbit", "5Gbit", "10Gbit"])
    assert [line.split()[0] for line in lines[heading + 2 : heading + 5]] == ["50ms", "80ms", "120ms"]
    assert "unknown field, did you mean 'latency'?" in lines[-1]
    assert (tmp_path / "pacific.pdf").stat().st_size > 1000
    assert len(list(tmp_path.glob("runs/*"))) == 3


def test_every_public_name_is_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [name for name in wanbed.__all__ if name not in text] == []

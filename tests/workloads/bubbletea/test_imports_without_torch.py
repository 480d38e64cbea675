"""The prefill controller is a process of its own, and must start without importing torch."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_nothing_of_prefill_imports_torch() -> None:
    files = sorted((ROOT / "workloads" / "bubbletea").rglob("*.py"))
    modules = [".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for file in files]
    assert len(modules) > 5
    program = f"import sys, {', '.join(modules)}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False, cwd=ROOT).returncode == 0

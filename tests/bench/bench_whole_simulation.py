"""What ``wanbed simulate`` costs as a whole at 10,240 GPUs beside its simulation alone, and how soon a report opens.

The experiment is that of ``bench_simulator``. The command resolves, simulates, stores, bounds, reads back and draws.
The simulation alone is of one part that stands for all, whose spans are copied. Seconds are those of the processor, but
for opening: from the address to the second frame with the charts, in Chromium.
"""

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from playwright.sync_api import sync_playwright

from tests.bench.bench_simulator import document
from tests.support.runner.wanbed_command import WANBED
from wanbed.ground.garbage import collect_rarely
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.simulator.variant_simulation import simulate_variant

GPUS, GPUS_OF_PAGE = 10_240, 4_000
CHROMIUM = "/usr/bin/chromium"
WIDTHS = (1280, 400)
MAX_PEAK_MIB, MAX_OPENING_S = 1024, 2.0
ROOT = Path(__file__).parents[2]


def in_a_process(what: str, *arguments: str) -> dict[str, float]:
    """What this file, run as a program, prints."""
    argv = [sys.executable, "-m", "tests.bench.bench_whole_simulation", what, *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=900, cwd=ROOT)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def written(gpus: int, folder: Path) -> Path:
    file = folder / "scale.yaml"
    file.write_text(yaml.safe_dump(document(gpus, trunk="unlimited", gpus_per_host=1)), encoding="utf-8")
    return file


def test_the_whole_command_beside_its_simulation(tmp_path: Path) -> None:
    file = written(GPUS, tmp_path)
    whole, parts = in_a_process("command", str(file)), in_a_process("parts", str(file))
    rest_s = whole["cpu_s"] - sum(parts.values())
    print(f"\n{GPUS:,} GPUs: {whole['cpu_s']:.1f} s of CPU, {whole['peak_mib']:.0f} MiB")
    print(
        f"starting {parts['start_s']:.1f} s, resolving {parts['resolve_s']:.1f} s, simulating "
        f"{parts['simulate_s']:.1f} s, all else {rest_s:.1f} s: {rest_s / parts['simulate_s']:.1f} times simulating"
    )
    assert whole["peak_mib"] < MAX_PEAK_MIB


@pytest.mark.parametrize("width", WIDTHS)
def test_a_large_report_opens_soon(tmp_path: Path, width: int) -> None:
    subprocess.run([*WANBED, "simulate", str(written(GPUS_OF_PAGE, tmp_path)), "--runs", str(tmp_path)], check=True)
    (report,) = tmp_path.glob("scale-*/report.html")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": 900})
        begin_s = time.perf_counter()
        page.goto(report.as_uri())
        page.evaluate("new Promise(shown => requestAnimationFrame(() => requestAnimationFrame(shown)))")
        opening_s = time.perf_counter() - begin_s
        drawn = page.locator(".drawing svg[role=img]:visible").count()
        browser.close()
    megabytes = report.stat().st_size / 1e6
    print(f"\n{GPUS_OF_PAGE:,} GPUs, {width} px: {drawn} pictures, {megabytes:.1f} MB, open after {opening_s:.2f} s")
    assert drawn
    assert opening_s < MAX_OPENING_S


def command(file: Path) -> dict[str, float]:
    """Run the command as a user types it, and return its processor time and memory."""
    argv = [*WANBED, "simulate", str(file), "--runs", str(file.parent)]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"cpu_s": used.ru_utime + used.ru_stime, "peak_mib": used.ru_maxrss / 1024}


def parts(file: Path) -> dict[str, float]:
    """Return the processor time of what the command needs besides storing and reporting."""
    before = os.times()
    subprocess.run([*WANBED, "simulate", "--help"], check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    collect_rarely()
    begin = time.process_time()
    (point,) = parse_experiment(yaml.safe_load(file.read_text(encoding="utf-8")), "benchmark", Path()).points()
    resolved = time.process_time()
    simulate_variant(point.topology, point.variants[0], point.iterations(point.variants[0]))
    return {
        "start_s": after.children_user + after.children_system - before.children_user - before.children_system,
        "resolve_s": resolved - begin,
        "simulate_s": time.process_time() - resolved,
    }


if __name__ == "__main__":
    what, file = sys.argv[1:]
    print(json.dumps((command if what == "command" else parts)(Path(file))))

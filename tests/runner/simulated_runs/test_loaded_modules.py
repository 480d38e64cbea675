"""To simulate and keep a trial takes neither data frames nor drawing, whose libraries take longer to load."""

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import os, sys
from pathlib import Path
from wanbed.runner.experiments.shipped_experiments import shipped_experiment
from wanbed.runner.planner.experiment_file import load_experiment
from wanbed.runner.simulated_runs.process_pool import ProcessPool
from wanbed.runner.simulated_runs.simulated_run import simulated_run

experiment = load_experiment(shipped_experiment("first").path, engine="simulate")
with open(os.devnull, "w") as nowhere:
    simulated_run(experiment, Path(sys.argv[1]), resume=False, pool=ProcessPool(1), log=lambda _: None, stream=nowhere)
print(*{"pandas", "matplotlib", "jinja2"} & set(sys.modules))
"""


def test_a_trial_is_simulated_and_kept_without_data_frames(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
    assert list(tmp_path.glob("first-*/trials/*/*/*/spans.parquet"))

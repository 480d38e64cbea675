"""Record outputs anew: ``python -m tests.golden [NAME ...]``, those of some experiments, or all within five minutes.

Their differences belong in a commit.
"""

import sys
import tempfile
from pathlib import Path

from tests.golden.record import REFUSALS, SIMULATIONS, VIRTUAL_TIME, read, write
from tests.golden.refusals import refusals
from tests.golden.simulated_bytes import EXPERIMENTS, shipped, simulated_bytes
from tests.golden.virtual_figures import NAMES, virtual_figures

names = sys.argv[1:]
files = [file for file in shipped() if not names or file.relative_to(EXPERIMENTS).with_suffix("").as_posix() in names]
with tempfile.TemporaryDirectory() as folder:
    runs = Path(folder)
    found = dict(each for file in files for each in simulated_bytes(file, runs))
    write(SIMULATIONS, (read(SIMULATIONS) | found if names else found).items())
    if not names:
        write(REFUSALS, refusals())
        figures = (each for name in NAMES for each in virtual_figures(name, runs))
        write(VIRTUAL_TIME, ((name, repr(seconds)) for name, seconds in figures))

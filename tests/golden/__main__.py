"""Record all outputs anew: ``python -m tests.golden``. It takes five minutes; their differences belong in a commit."""

import tempfile
from pathlib import Path

from tests.golden.record import REFUSALS, SIMULATIONS, VIRTUAL_TIME, write
from tests.golden.refusals import refusals
from tests.golden.simulated_bytes import shipped, simulated_bytes
from tests.golden.virtual_figures import NAMES, virtual_figures

with tempfile.TemporaryDirectory() as folder:
    runs = Path(folder)
    write(REFUSALS, refusals())
    write(SIMULATIONS, (each for file in shipped() for each in simulated_bytes(file, runs)))
    figures = (each for name in NAMES for each in virtual_figures(name, runs))
    write(VIRTUAL_TIME, ((name, repr(seconds)) for name, seconds in figures))

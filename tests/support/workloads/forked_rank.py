"""Ranks as processes of their own that need not load torch, which takes seconds: one that has loaded it forks them."""

import importlib
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

_LOADED = [
    "wanbed.workloads.rank",
    "wanbed.workloads.baselines.training",
    "tests.support.workloads.torch_rank_on_hostile_gpu",
    "tests.support.workloads.hostile_gpu.hostile_backend",
    # An optimizer's first step loads it.
    "torch._dynamo",
    # Each fork imports the main module of the process that asked for it.
    "pytest",
]


class ForkedRank:
    """A process that runs ``main([config])`` of a module, with what the tests use of ``subprocess.Popen``."""

    def __init__(self, module: str, config: Path) -> None:
        context = multiprocessing.get_context("forkserver")
        # Before the first start only; later ones change nothing.
        context.set_forkserver_preload(_LOADED)
        self._errors = config.with_suffix(".errors")
        self._process = context.Process(target=_become, args=(module, str(config), str(self._errors)))
        # Set by a rank itself before it loads torch; the process that has loaded it begins with the first start.
        with mock.patch.dict(os.environ, TORCH_CPP_LOG_LEVEL="FATAL"):
            self._process.start()

    @property
    def returncode(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""
        return self._process.exitcode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for the end. Return what the process has written to its standard output, which is not kept, and error.

        Raise subprocess.TimeoutExpired if it has not ended by then.
        """
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(str(self._process), timeout or 0.0)
        return "", self._errors.read_text(encoding="utf-8")

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit status. Raise subprocess.TimeoutExpired if it has not ended by then."""
        self.communicate(timeout)
        assert self.returncode is not None
        return self.returncode

    def poll(self) -> int | None:
        """Return the exit status, None while it runs."""
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, if it still runs."""
        if self.returncode is None and self._process.pid is not None:
            os.kill(self._process.pid, number)

    def kill(self) -> None:
        """Send SIGKILL, if it still runs."""
        self._process.kill()


def _become(module: str, config: str, errors: str) -> None:
    with open(errors, "wb") as file:
        os.dup2(file.fileno(), sys.stderr.fileno())
    sys.exit(importlib.import_module(module).main([config]))

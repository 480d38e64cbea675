import json
import os
from pathlib import Path

import pytest

from wanbed.runner.runs.recorded import machine_facts as module
from wanbed.runner.runs.recorded.machine_facts import cpu_model, host_facts, machine_facts, program_version


def test_the_host_is_described() -> None:
    host = host_facts()
    assert host["kernel"] == os.uname().release
    assert host["cores"] == len(os.sched_getaffinity(0))
    assert host["memory_bytes"] > 2**27
    assert host["cpu"]


def test_the_processor_is_named_where_the_kernel_names_it() -> None:
    assert cpu_model("processor\t: 0\nmodel name\t: Fast CPU @ 3 GHz\nflags\t: a\n") == "Fast CPU @ 3 GHz"
    assert cpu_model("processor\t: 0\nCPU part\t: 0xd0c\n") is None


def test_the_facts_are_plain_json_with_the_load_and_the_sysctls_of_this_moment() -> None:
    facts = machine_facts()
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    assert len(facts["load_average"]) == 3
    assert "net.core.rmem_max" in facts["machine_sysctls"]
    assert facts["programs"].keys() == {"iperf3", "ping"}


def test_unreadable_facts_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_GOVERNOR", tmp_path / "scaling_governor")
    monkeypatch.setattr(module, "_CLOCK_SOURCE", tmp_path / "current_clocksource")
    monkeypatch.setattr(module, "_SYSCTLS", ("net.core.of_another_kernel",))
    monkeypatch.setenv("PATH", "")
    facts = machine_facts()
    assert facts["host"]["frequency_governor"] is None
    assert facts["clock_source"] is None
    assert facts["machine_sysctls"] == {"net.core.of_another_kernel": None}
    assert facts["programs"] == {"iperf3": None, "ping": None}


@pytest.mark.parametrize(
    ("script", "text"),
    [("echo 'iperf 3.12 (cJSON)'; echo more", "iperf 3.12 (cJSON)"), ("true", None), ("echo 3.12; exit 1", None)],
)
def test_a_program_version_is_its_first_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, text: str | None
) -> None:
    program = tmp_path / "iperf3"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert program_version("iperf3", "--version") == text

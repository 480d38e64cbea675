from pathlib import Path
from typing import Any

import pytest

from tests.support.refused import refused
from tests.support.runner.two_jobs import two_jobs
from wanbed.runner.planner.experiment_file import parse_experiment


def refusal(document: dict[str, Any]) -> str:
    return refused(lambda: parse_experiment(document, "file", Path()))


def job(name: str, variants: list[str], **hosts: int) -> dict[str, Any]:
    return {"name": name, "hosts": hosts, "variants": variants}


OURS, THEIRS = job("a", ["ours"], east=2, west=2), job("b", ["theirs"], east=2, west=2)


@pytest.mark.parametrize(
    ("jobs", "words"),
    [
        ([OURS], "a single one shares the WAN with nobody: give two or more"),
        ([OURS, {**THEIRS, "name": "a"}], "jobs.1.name: 'a' is given twice"),
        ([OURS, job("b", ["thiers"], east=2)], "jobs.1.variants: no variant 'thiers', did you mean 'theirs'?"),
        ([OURS, job("b", ["theirs", "ours"], east=2)], "jobs.1.variants: 'ours' is a variant of 'a' already"),
        ([OURS, job("b", [], east=2)], "a job needs a variant to run"),
        ([OURS, job("b", ["theirs"])], "a job without hosts trains nothing"),
        ([OURS, job("b", ["theirs"], east=2, nrth=2)], "jobs.1.hosts: no datacenter 'nrth', there are east, west"),
        ([OURS, job("b", ["theirs"], east=2, west=3)], "jobs.1.hosts.west: 3 hosts, where 2 of 4 are left"),
        ([OURS, {**THEIRS, "iterations": 1}], "jobs.1.iterations: 1, of which 1 warm up, leaves none to measure"),
    ],
)
def test_jobs_that_cannot_run_at_once_are_refused_with_field_and_remedy(jobs: list[dict[str, Any]], words: str) -> None:
    assert words in refusal(two_jobs(jobs=jobs))


def test_every_variant_belongs_to_a_job() -> None:
    more = [*two_jobs()["variants"], {"name": "third", "schedule": "gpipe"}]
    assert "variants.2: no job has 'third': add it to one, or leave it out" in refusal(two_jobs(variants=more))


def test_a_program_does_not_run_beside_another_job() -> None:
    variants = [two_jobs()["variants"][0], {"name": "theirs", "program": {"command": ["true"], "iterations": 2}}]
    assert "variants.1.program: only trainings by a schedule of wanbed's ranks" in refusal(two_jobs(variants=variants))


def test_nothing_is_let_fail_beside_another_job() -> None:
    assert "fail: nothing is let fail beside another job" in refusal(two_jobs(fail=[{"rank": 0, "at": "1s"}]))


def test_an_experiment_without_jobs_keeps_its_document_and_hash() -> None:
    document = two_jobs()
    del document["jobs"]
    experiment = parse_experiment(document, "file", Path())
    assert "jobs" not in experiment.document()
    assert parse_experiment(experiment.document(), "file", Path()).config_hash == experiment.config_hash

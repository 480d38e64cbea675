from wanbed.results.reading.stored_trial import TrialFaults


def test_a_trial_without_failures_has_no_outcome() -> None:
    found = TrialFaults.of({"losses": []})
    assert found.outcome is None
    assert not found.failed


def test_of_several_failures_the_longest_times_count() -> None:
    disturbances = [
        {"time_to_detect_ns": 8 * 10**9, "time_to_recover_ns": 9 * 10**9},
        {"time_to_detect_ns": 10**7, "time_to_recover_ns": None},
    ]
    found = TrialFaults.of(
        {
            "faults": {
                "outcome": "recovered",
                "disturbances": disturbances,
                "iterations_lost": 2,
                "training_goodput": 0.5,
            }
        }
    )
    assert (found.time_to_detect_s, found.time_to_recover_s) == (8.0, 9.0)
    assert (found.iterations_lost, found.training_goodput) == (2, 0.5)


def test_a_trial_that_failed_by_plan_is_told_from_one_that_did_not() -> None:
    planned = TrialFaults.of({"faults": {"outcome": "failed", "planned": True}})
    unplanned = TrialFaults.of({"faults": {"outcome": "failed", "planned": False, "reason": "lost"}})
    assert planned.failed
    assert not planned.failed_unplanned
    assert unplanned.failed_unplanned

from collections import Counter

from tests.reliability.kills.attempts import allowed_statuses
from tests.reliability.kills.disturbances import SIGNALS, STARVATIONS, Disturbance, drawn, scene_of
from tests.reliability.kills.scenes import RACK, SCENES

DRAWN = [drawn(1, number) for number in range(1000)]


def test_a_number_of_a_seed_is_always_the_same_disturbance() -> None:
    assert [drawn(1, number) for number in range(1000)] == DRAWN
    assert [drawn(2, number) for number in range(1000)] != DRAWN


def test_a_thousand_disturb_every_command_by_every_signal_and_starvation() -> None:
    scenes = Counter(each.scene for each in DRAWN)
    assert {*scenes} == {RACK, *(scene.name for scene in SCENES)}
    assert min(scenes.values()) > 20
    kinds = Counter((each.kind, each.whom) for each in DRAWN if each.scene != RACK)
    assert {kind for kind, _ in kinds} == {*SIGNALS, *STARVATIONS}
    assert min(kinds.values()) > 10


def test_a_child_is_disturbed_only_where_there_are_some_and_a_folder_only_where_something_is_written() -> None:
    for each in DRAWN:
        if each.scene != RACK:
            assert each.whom != "child" or scene_of(each).starts_processes
            assert each.kind not in {"full disk", "read-only folder", "folder removed"} or scene_of(each).writes


def test_a_command_that_gets_a_signal_ends_with_its_status() -> None:
    simulation = Disturbance(0, "simulate", "TERM", "command", 0.5, 0.5)
    assert allowed_statuses(simulation, scene_of(simulation)) == {143}


def test_a_command_whose_child_gets_one_has_no_data_or_goes_on() -> None:
    simulation = Disturbance(0, "simulate, two processes", "KILL", "child", 0.5, 0.5)
    assert allowed_statuses(simulation, scene_of(simulation)) == {0, 4}


def test_a_program_on_a_host_passes_the_status_of_its_signal_through() -> None:
    program = Disturbance(0, "exec", "KILL", "child", 0.5, 0.5)
    assert allowed_statuses(program, scene_of(program)) == {0, 4, 137}


def test_a_process_of_a_guest_takes_a_signal_from_outside_for_a_segmentation_fault() -> None:
    program = Disturbance(0, "exec, virtual time", "INT", "child", 0.5, 0.5)
    run, relay = (Disturbance(0, scene, "STOP", "child", 0.5, 0.5) for scene in ("run", "run, relay"))
    assert allowed_statuses(program, scene_of(program)) == {0, 4, 130, 139}
    assert allowed_statuses(run, scene_of(run)) == {0, 1, 4}
    assert allowed_statuses(relay, scene_of(relay)) == {0, 1}

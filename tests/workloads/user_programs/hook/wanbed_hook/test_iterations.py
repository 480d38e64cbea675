from wanbed.workloads.user_programs.hook.wanbed_hook.iterations import Iterations


def test_an_iteration_lasts_from_the_end_of_the_one_before() -> None:
    iterations = Iterations(3, 0, start_ns=10)
    assert [iterations.end(now) for now in (15, 30, 31)] == [(0, 10, 15), (1, 15, 30), (2, 30, 31)]
    assert iterations.is_over


def test_the_last_ones_are_profiled_and_the_first_of_them_begins_later() -> None:
    iterations = Iterations(4, 2, start_ns=0)
    seen = []
    for now_ns in (10, 20, 30, 40):
        seen.append((iterations.is_profiled, iterations.begins_profile))
        if iterations.begins_profile:
            iterations.begin_later(now_ns - 2)
        ended = iterations.end(now_ns)
    assert seen == [(False, False), (False, False), (True, True), (True, False)]
    assert ended == (3, 30, 40)


def test_without_a_profile_none_begins() -> None:
    iterations = Iterations(2, 0, start_ns=0)
    began = []
    while not iterations.is_over:
        iterations.end(iterations.current + 1)
        began.append(iterations.begins_profile)
    assert began == [False, False]

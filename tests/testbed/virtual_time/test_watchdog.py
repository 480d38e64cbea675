from wanbed.testbed.virtual_time.watchdog import Look, Patience, Watchdog

PATIENCE = Patience(spin_cpu_s=10, quiet_virtual_s=100, still_wall_s=1000)
S = 10**9


def watched(*looks: tuple[float, float, float, int]) -> list[bool | None]:
    """Verdicts over looks of (wall seconds, virtual seconds, CPU seconds, sign)."""
    watchdog = Watchdog(PATIENCE)
    return [watchdog.spins(Look(wall, round(virtual * S), cpu, sign)) for wall, virtual, cpu, sign in looks]


def test_a_clock_that_stands_still_while_the_guest_computes_is_a_spin() -> None:
    assert watched((0, 5, 0, 0), (6, 5, 6, 0), (11, 5, 11, 0)) == [None, None, True]


def test_the_least_that_the_clock_moves_is_no_spin() -> None:
    assert watched((0, 5, 0, 0), (9, 5 + 1e-9, 9, 0), (18, 5 + 1e-9, 18, 0)) == [None, None, None]


def test_a_busy_machine_that_gives_the_guest_little_makes_no_spin() -> None:
    assert watched((0, 5, 0, 0), (500, 5, 9, 0)) == [None, None]


def test_a_clock_that_runs_away_without_a_sign_is_a_deadlock() -> None:
    assert watched((0, 0, 0, 0), (1, 99, 1, 0), (2, 101, 2, 0)) == [None, None, False]


def test_a_sign_gives_it_all_its_patience_again() -> None:
    assert watched((0, 0, 0, 0), (1, 99, 1, 1), (2, 198, 2, 1), (3, 200, 3, 1)) == [None, None, None, False]


def test_idle_guest_whose_clock_stands_still_is_stuck() -> None:
    assert watched((0, 5, 1, 0), (999, 5, 1, 0), (1001, 5, 1, 0)) == [None, None, False]

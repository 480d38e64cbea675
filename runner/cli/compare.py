"""``wanbed compare``: compare two runs, or two variants of one run, and decide whether the second is slower."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wanbed.ground.errors import InputError
from wanbed.ground.exclusions import Exclusion, check_exclusions
from wanbed.runner.cli.arguments import STANDARD_OUTPUT, AsJson, RunsFolder
from wanbed.runner.cli.exit_status import fail, log, one_line_errors
from wanbed.runner.runs.faults import DONE, NO_DATA, NOT_COMPARABLE, REGRESSED

if TYPE_CHECKING:
    from rich.console import Console

    from wanbed.results.comparison.comparison import Check, PairKey, Verdict
    from wanbed.results.reading.run import Run

_STATUS: "dict[Verdict, int]" = {
    "same": DONE,
    "improved": DONE,
    "regressed": REGRESSED,
    "not_comparable": NOT_COMPARABLE,
    "no_data": NO_DATA,
}


def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="Folder of the baseline's run.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Folder of the run to judge.")],
    *,
    margin: Annotated[
        str, typer.Option(metavar="PERCENT", help="How much slower is no regression yet, and how much faster no gain.")
    ] = "2%",
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow", metavar="FIELD", help="Compare though this field differs, or one below it; repeatable."
        ),
    ] = None,
    pair: Annotated[
        list[str] | None,
        typer.Option(
            "--pair", metavar="A_VARIANT=B_VARIANT", help="Compare variants of different names; A and B may be one run."
        ),
    ] = None,
    noise: Annotated[
        int | None,
        typer.Option(
            "--noise", metavar="N", help="Run A's experiment again N times, and raise the margin to the noise."
        ),
    ] = None,
    runs: RunsFolder = Path("runs"),
    metric: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--metric",
            metavar="NAME VALUE",
            help="Judge what torch learnt in place of iteration times: loss-at 60s, or time-to 2.5.",
        ),
    ] = None,
    clock: Annotated[
        list[Path] | None,
        typer.Option(
            "--clock",
            metavar="RUN",
            help="Time the losses by the run of the same training there, as a simulation; given twice, A's and B's.",
        ),
    ] = None,
    markdown_to: Annotated[
        Path | None,
        typer.Option("--markdown", metavar="FILE", help="Write a summary for CI there; - is standard output."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the resampling.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Compare B's iteration times with A's at each sweep point for each variant, and report whether B regressed.

    With --metric the loss after a time, or the time to a loss, is compared in their place.
    A regression is an effect beyond the margin whose 95 % interval excludes the margin. Exit status 0 same or improved,
    1 regressed, 3 not comparable (the fields that differ are listed), 4 no data.
    """
    with one_line_errors():
        from wanbed.results.comparison.comparison import compare as compare_runs
        from wanbed.results.comparison.comparison import load_clocks, parse_margin
        from wanbed.results.comparison.judgement import ITERATION_TIME, parse_metric
        from wanbed.results.comparison.markdown import markdown
        from wanbed.results.metrics.bootstrap import FEWEST_REPEATS
        from wanbed.results.text import json_text
        from wanbed.runner.cli.comparison_tables import WIDTH, show
        from wanbed.runner.cli.terminal import terminal

        to_stdout = markdown_to == STANDARD_OUTPUT
        if to_stdout and as_json:
            raise InputError("--markdown -: --json has standard output, give a file")
        fraction = parse_margin(margin)
        if noise is not None and noise < FEWEST_REPEATS:
            raise InputError(
                f"--noise: {noise} repeats are too few to measure the noise, give {FEWEST_REPEATS} or more"
            )
        judged = ITERATION_TIME if metric is None else parse_metric(metric)
        check_exclusions(
            Exclusion(
                "--noise",
                "it measures iteration times, and --metric judges losses",
                when=noise is not None and judged.of_losses,
                leave="--noise or --metric",
            ),
            Exclusion(
                "--clock",
                "it times losses",
                "give --metric loss-at TIME or --metric time-to LOSS too",
                when=bool(clock) and not judged.of_losses,
            ),
        )
        checked = _checked(a, b, pair or [], allow or [])
        clocks = load_clocks(clock or (), 2)
        console = terminal(stderr=as_json or to_stdout, width=WIDTH)
        floors: dict[PairKey, float] = {}
        if noise is not None and not checked.refused and checked.pairs:
            floors = _noise(checked, noise, allow=allow or [], runs=runs, seed=seed, console=console)
        comparison = compare_runs(
            checked, margin=fraction, floors=floors, seed=seed, metric=judged, clocks=(clocks[0], clocks[1])
        )
        show(comparison, console)
        if as_json:
            print(json_text(comparison.document()))
        if to_stdout:
            print(markdown(comparison), end="")
        elif markdown_to is not None:
            try:
                markdown_to.write_text(markdown(comparison), encoding="utf-8")
            except OSError as fault:
                raise InputError(f"--markdown: {markdown_to}: {fault.strerror}, give another file") from None
    if status := _STATUS[comparison.verdict]:
        raise typer.Exit(status)


def _checked(a: Path, b: Path, pairs: list[str], allow: list[str]) -> "Check":
    from wanbed.results.comparison.comparison import check, load_both

    baseline, judged = load_both(a, b)
    names = [_names(text, baseline, judged) for text in pairs]
    return check(baseline, judged, names=names, allow=allow)


def _names(text: str, a: "Run", b: "Run") -> tuple[str, str]:
    """Return the two variants of a ``--pair``. A name may itself contain an equals sign."""
    splits = [(text[:position], text[position + 1 :]) for position, letter in enumerate(text) if letter == "="]
    if not splits:
        raise InputError(f"--pair {text}: write the variant of A, an equals sign and that of B, like stock=mine")
    return next((split for split in splits if split[0] in a.variants and split[1] in b.variants), splits[0])


def _noise(
    checked: "Check", repeats: int, *, allow: list[str], runs: Path, seed: int, console: "Console"
) -> "dict[PairKey, float]":
    from wanbed.results.comparison.differences import is_below
    from wanbed.runner.cli.comparison_tables import differences_table
    from wanbed.runner.cli.terminal import print_table
    from wanbed.runner.cli.user_namespace import enter_user_namespace
    from wanbed.runner.emulation.noise_floor import check_noise, noise_experiment, noise_floors, run_again

    a = checked.a
    drawn = a.simulated and any(a.drawn(pair.a.point) for pair in checked.pairs)
    check_exclusions(
        Exclusion("--noise", "A draws its compute times, and its repeats show how much they differ", when=drawn)
    )
    if a.simulated:
        log("a simulation gives the same every time: its noise is 0 by construction, and nothing is run")
        return {(pair.a.point, pair.a.variant): 0.0 for pair in checked.pairs}
    if a.manifest.get("clock") == "virtual":
        raise InputError(
            "--noise: A ran in virtual time, which is as steady on any machine, and compare knows how steady: leave "
            "--noise out"
        )
    experiment = noise_experiment(a, {pair.a.variant for pair in checked.pairs}, repeats)
    enter_user_namespace()
    again = run_again(a, experiment, runs, log)
    held = check_noise(a, again)
    refused = [each for each in held.refused if not any(is_below(each.field, field) for field in allow)]
    if refused:
        title = "The run that was to measure the noise is not comparable to A"
        print_table(differences_table(title, refused), console)
        fields = ", ".join(dict.fromkeys(each.field for each in refused))
        fail(f"{again.path}: the run that was to measure the noise differs from A in {fields}", NOT_COMPARABLE)
    return dict(noise_floors(held, checked.pairs, seed))

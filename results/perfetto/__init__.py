"""Export a run as Chrome Trace JSON for Perfetto. The entry point is ``results.perfetto.trace_file.write_trace``."""

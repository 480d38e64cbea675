"""A run as a trace that Perfetto opens: Chrome Trace JSON, written by ``results.perfetto.trace_file.write_trace``."""

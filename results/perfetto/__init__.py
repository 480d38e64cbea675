"""Export a run as Chrome Trace JSON for Perfetto. Begin at ``wanbed.results.perfetto.trace_file.write_trace``."""

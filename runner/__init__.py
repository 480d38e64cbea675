"""Run experiments: command line, experiment file, sweep, engines, resume."""

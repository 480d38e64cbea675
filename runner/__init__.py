"""How an experiment is run: command line, experiment file, sweep, engines, resume."""

"""Chakra execution traces, the exchange format of MLCommons: their messages, files, and one trial as a trace."""

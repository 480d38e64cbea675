"""The engine ``simulate``: simulate training as discrete events, with the emulation's schedules and topology."""

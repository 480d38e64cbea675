"""The engine ``simulate``: a discrete-event simulation of training, with the emulation's schedules and topology."""

"""The engine ``simulate``: training as discrete events, with the schedules and the topology of the emulation."""

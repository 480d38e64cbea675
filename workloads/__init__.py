"""Everything that runs on an emulated host: schedules, compute back ends, transport, serving, and the rank's loop."""

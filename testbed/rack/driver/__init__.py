"""The driver's side of what runs on machines: processes, files, gates, clocks and readings."""

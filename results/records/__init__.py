"""Define, write and read a run's records: columns, files and folders."""

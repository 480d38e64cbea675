"""The folder of a run, its manifest and its progress, shared by both engines."""

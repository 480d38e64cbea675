"""The section ``fail`` of the experiment file."""

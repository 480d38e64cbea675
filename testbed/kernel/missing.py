"""Define the error for something that the machine lacks."""


class MissingError(Exception):
    """The machine lacks something; the message is one line that names it and what to install. Exit status 5."""

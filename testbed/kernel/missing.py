"""Say that the machine lacks something."""


class MissingError(Exception):
    """The machine lacks something; the message is one line that names it and what to install. Exit status 5."""

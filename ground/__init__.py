"""Provide what every other package uses. Modules here import none of the other packages."""

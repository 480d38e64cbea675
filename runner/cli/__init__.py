"""The command line, one module per command. No other package uses typer."""

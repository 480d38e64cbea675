"""Commands that run, simulate, plan and profile."""

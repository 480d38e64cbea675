"""Hold what the paper claims against what was reproduced."""

"""Lower bounds on the time of an iteration: of a trial, and of a candidate that the planner looks at."""

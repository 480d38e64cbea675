"""Run a program of the user's as a trial: start its processes, follow its iterations, gather what it leaves."""

"""Build the report's section on programs of the user: where each rank's time went, and on which collectives."""

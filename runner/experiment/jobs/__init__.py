"""Define what shares the WAN with a training: other trainings, and traffic that trains nothing."""

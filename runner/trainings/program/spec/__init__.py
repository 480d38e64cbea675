"""Define the section ``program`` of a variant: a program of the user's, and what is filled into its words."""

"""Make the JSON schema and the reference page of the experiment file from the descriptions of its fields."""

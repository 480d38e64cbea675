"""Programs of users: what runs beside one on its host, and what records its iterations from inside its Python."""

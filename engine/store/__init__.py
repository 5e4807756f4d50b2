"""State that survives a restart. Only `sql` and `schema` import SQLAlchemy."""

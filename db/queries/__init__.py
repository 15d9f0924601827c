"""Parts of queries: cursors of pages, and values in JSON columns; imports SQLAlchemy alone."""

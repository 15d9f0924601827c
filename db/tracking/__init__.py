"""Tables of what programs elsewhere log; imports `db.models` and SQLAlchemy alone."""

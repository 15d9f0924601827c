"""Reading batches, in the rank or by data workers; imports `tasks` and `common`."""

"""Source of jobs: where they were submitted from, and their code; imports `access`, the database
and `training.spec`."""

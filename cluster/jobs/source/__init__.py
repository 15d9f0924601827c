"""Source of jobs: where they were submitted from, their code and packages; imports `access`, the
database and `training`."""

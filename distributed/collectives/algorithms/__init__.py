"""The all-reduce algorithms, one a file, as schedules; imports `schedule` alone."""

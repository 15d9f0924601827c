"""The engine of a rank, the job spec and the SDK; imports `parallelism` and `distributed`."""

"""MLflow's REST API on the host, for the clients of one job; imports `wire.mlflow` and
`training.link` alone."""

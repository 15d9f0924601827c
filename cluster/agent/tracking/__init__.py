"""MLflow's REST API on the host: what a job's MLflow client logs joins the job's own metrics."""

"""TensorBoard's event files of a job, read into a metric spool; imports `tracking`."""

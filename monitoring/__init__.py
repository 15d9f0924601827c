"""Metrics, logs and live streams of jobs; imports `db`, and the frames of `training.link`."""

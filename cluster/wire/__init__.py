"""The messages between coordinator and agent; imports `training.link` alone."""

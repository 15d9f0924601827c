"""Commands on checkpoints, and text sampled from one; imports `base` and `spec`."""

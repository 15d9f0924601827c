"""Commands on checkpoints, and text sampled from one."""

"""Agreement of all ranks of a job beside gradients; imports `link` and `distributed`."""

"""Commands into running jobs: `exec`, `forward`, `stacks`; imports `base`."""

"""Routes of sessions beside jobs: commands, ports, stacks; imports nothing of the others."""

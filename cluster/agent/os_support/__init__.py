"""The operating system: processes and what Linux alone has; imports nothing of ours."""

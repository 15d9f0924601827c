"""Containers of attempts and the processes in them; imports `os_support` and `training.link`."""

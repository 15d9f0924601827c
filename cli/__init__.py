"""The `trainhall` command, a folder per group of commands.

It imports any folder without torch, and a command's modules when the command runs.
"""

"""The `trainhall` command, a folder per group of commands; modules are imported when they run."""

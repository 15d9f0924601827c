"""The `trainhall` command, a folder per group; imports any folder, but never torch."""

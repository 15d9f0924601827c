"""The training loop of a rank; imports all packages but `elastic`, `planning`, `sdk`, `verify`."""

"""The training loop of a rank; imports all rooms but `elastic`, `planning`, `sdk`, `verify`."""

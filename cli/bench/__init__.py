"""`trainhall bench`: collectives measured, simulated, drawn; imports `base` and `distributed`."""

"""`trainhall bench`: collectives measured, simulated and drawn."""

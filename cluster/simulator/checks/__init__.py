"""What must hold at every moment of a simulated run."""

"""Checks that hold at every moment of a simulated run; imports the hosts that it checks."""

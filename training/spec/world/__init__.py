"""Surroundings of a job: the environment of its ranks; imports no other part of the spec."""

"""Sample order, step times, random state, hashes; imports `spec`."""

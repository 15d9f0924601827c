"""Commands on experiments; imports `base` and `spec`."""

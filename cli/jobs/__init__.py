"""Commands on jobs; imports `base` and `spec`."""

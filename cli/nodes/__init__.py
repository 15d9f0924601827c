"""Commands on nodes, quotas, the live view, and the check of a host; imports `base`."""

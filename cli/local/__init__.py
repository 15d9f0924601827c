"""`trainhall run`: training without a coordinator; imports `jobs`, `plan` and `spec`."""

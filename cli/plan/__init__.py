"""`trainhall plan`: memory and step time before a run; imports `base` and `spec`."""

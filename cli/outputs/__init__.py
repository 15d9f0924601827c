"""Commands about the files that jobs have written; imports `base`."""

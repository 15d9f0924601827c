"""The hash chain of a reproducible job; imports `common`, `link` and `sync`."""

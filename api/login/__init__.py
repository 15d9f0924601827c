"""Authentication of requests, and the first admin; imports `guard` and `startup`."""

"""The agent of a host, and the shim that supervises ranks; imports `wire`, no database."""

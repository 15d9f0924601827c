"""Users, their sessions and API tokens; imports `access`, `lifecycle` and `service`."""

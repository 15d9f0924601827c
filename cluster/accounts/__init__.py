"""Users, their sessions and API tokens; imports `access` and `service`."""

"""Users, their sessions and API tokens; imports `service`."""

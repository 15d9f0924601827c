"""Commands about logins and API tokens; imports `base`."""

"""Tunnels into attempts of this host, and what runs there; imports `attempts`, `shim`."""

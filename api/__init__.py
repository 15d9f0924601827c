"""REST API and websockets; imports `cluster`, `monitoring`, `db` and the torch-free `training`."""

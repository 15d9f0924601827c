"""What the host gives a coordinator: a socket, folders, the configuration file; imports nothing of
ours."""

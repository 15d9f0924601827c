"""Socket, folders and configuration file of the host; imports nothing of ours."""

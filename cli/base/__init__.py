"""Base of every command: options, configuration, the client, tables; imports no command."""

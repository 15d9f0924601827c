"""What every command uses: options, configuration, the client, tables; imports no command."""

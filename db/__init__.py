"""Tables, sessions, events and their stream; imports no other folder."""

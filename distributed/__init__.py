"""Process groups, collectives, compression, the rank environment; imports no other folder."""

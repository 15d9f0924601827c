"""Process groups, collectives, compression, the environment of a rank; imports no other folder."""

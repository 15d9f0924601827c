"""Environment variables of ranks; imports the problems of a spec."""

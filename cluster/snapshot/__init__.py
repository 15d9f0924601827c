"""The state that decisions are made from, loaded at once; imports `lifecycle` and `nodes`."""

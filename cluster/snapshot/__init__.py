"""The state that decisions rest on, loaded at once; imports `lifecycle`, `nodes` and `wire`."""

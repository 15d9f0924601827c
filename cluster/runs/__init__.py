"""Runs that run elsewhere: their clients log here, by the API of MLflow; imports `access`, `jobs`,
`lifecycle`, `outputs` and `wire`."""

"""What the data sets of jobs were on hosts; imports `access`, `lifecycle` and `wire`."""

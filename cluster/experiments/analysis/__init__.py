"""Analysis of an experiment by pure functions over plain rows; `load`, which reads the rows, alone
imports `db`."""

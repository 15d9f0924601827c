"""The list of jobs in a terminal: its command and columns; imports `owners` and `queue_history`."""

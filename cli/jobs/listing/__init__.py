"""The list of jobs in a terminal: its command and its columns; imports `owners` and `queue_history`."""

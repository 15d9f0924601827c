"""Python environments of jobs, locked and installed; imports `coordinator_link` and `data_dir`."""

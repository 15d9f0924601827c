"""Clones of git repositories for jobs; imports `folder_store` and `os_support`."""

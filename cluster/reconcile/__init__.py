"""Decisions and how they are applied; imports every room of `cluster` but `coordinator`."""

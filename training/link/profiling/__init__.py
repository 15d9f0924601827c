"""Requests for profiles of a job's steps, and reports of ranks; imports nothing but `link`."""

"""Profiles of running jobs' steps: requests, and what ranks report of them.

It imports `access`, `jobs`, `lifecycle`, `wire`.
"""

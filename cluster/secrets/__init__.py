"""Secrets that jobs get as environment variables: storing, and handing out for an attempt.

It imports `access`, `service`.
"""

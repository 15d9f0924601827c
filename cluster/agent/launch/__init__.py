"""Preparation of an attempt: code, plan, warm parent.

It imports `coordinator_link` and `os_support`.
"""

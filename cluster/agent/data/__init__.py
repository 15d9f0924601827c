"""Data sets of jobs on this host: downloaded, unpacked, found and described; imports `os_support`.

What touches them runs in processes of their own (`fetch`, `unpack`, `inspect`): they can be ended,
and those that open what a job names have the job's rights.
"""

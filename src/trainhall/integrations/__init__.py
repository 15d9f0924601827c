"""Callbacks for training libraries: metrics, pause and resume in a job; imports the SDK.

Each module needs the library of its name, and is imported by scripts that use it. Outside a job
they do nothing.
"""

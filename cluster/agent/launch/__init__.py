"""Preparation of an attempt: code, plan, warm parent."""

"""Secrets of an attempt on their way to its ranks, and out of what these write.

It imports nothing but its neighbours in `link`.
"""

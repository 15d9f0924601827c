"""Collectives measured between real processes: on loopback, and between hosts on limited links.

No other room of `distributed` imports it.
"""

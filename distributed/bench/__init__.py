"""Collectives measured between real processes; no other package of `distributed` imports it."""

"""Collectives measured between real processes; no other room of `distributed` imports it."""

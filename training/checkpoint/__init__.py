"""Checkpoints as transactions; imports `spec` and `distributed` alone."""

"""Packages for these tests."""

from support.storage.wheels import wheels

__all__ = ["wheels"]

"""The messages between coordinator and agent; imports no database."""

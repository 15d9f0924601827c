"""Uploads of what ranks wrote to the coordinator; imports `coordinator_link`."""

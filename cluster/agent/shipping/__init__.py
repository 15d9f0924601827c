"""What ranks wrote, on its way to the coordinator; imports `coordinator_link`."""

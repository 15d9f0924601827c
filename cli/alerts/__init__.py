"""Commands about alerts and their deliveries; imports `base`."""

"""Commands about the reports that users write; imports `base`."""

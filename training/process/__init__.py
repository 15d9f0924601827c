"""The process of a rank: warm parent, device, place in the group; imports `link`."""

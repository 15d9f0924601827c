"""Job specs as files and options of commands; imports `base`."""

"""Jobs as users command and read them; imports `lifecycle` and `wire`."""

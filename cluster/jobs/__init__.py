"""Jobs as users command and read them; imports `ledger`, `lifecycle` and `wire`."""

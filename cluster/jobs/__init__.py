"""Jobs as users command and read them; imports `access`, `ledger`, `lifecycle`, `secrets` and
`wire`."""

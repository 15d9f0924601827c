"""What jobs write: records, bytes and uploads; imports `access`, `lifecycle` and `wire`."""

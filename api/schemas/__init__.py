"""Bodies of requests and responses; imports the views of `cluster`, and no other part of `api`."""

"""The OpenAPI document: operations, their descriptions and examples."""

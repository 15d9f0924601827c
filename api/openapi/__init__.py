"""Descriptions and examples of the OpenAPI document; imports `schemas`."""

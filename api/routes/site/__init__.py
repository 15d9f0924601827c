"""Routes beside the REST API: dashboard, page of the document, probes; imports `openapi`."""

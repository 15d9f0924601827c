"""Source of a job: repository and command that it was submitted from; imports `spec.base`
and `spec.variables`."""

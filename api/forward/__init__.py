"""Ports of jobs as pages, each on an origin of its own, `JOB-PORT.DOMAIN`; imports `guard`,
`limits` and `login`, but `origins`, which settings import, nothing of ours."""

"""Lists of jobs: `query` parses what to keep, `fields` and `conditions` turn it into SQL, `sorting`
has the orders and their cursors, `pages` reads a page, `groups` counts. It imports `lifecycle` and
the database."""

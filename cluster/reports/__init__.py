"""Reports that users write: Markdown with live charts; imports `access` and
`service`."""

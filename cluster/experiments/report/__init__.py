"""Reports of an analysis, as HTML, Markdown, JSON and CSV; imports `analysis`."""

"""Reading the text of a spec, before its fields are known; imports nothing else of ours."""

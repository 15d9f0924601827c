"""Files of jobs as downloads; imports `problems`."""

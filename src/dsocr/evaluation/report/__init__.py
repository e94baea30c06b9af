"""Reports of evaluations: a page in one file, and the same in Markdown."""

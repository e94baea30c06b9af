"""What an evaluation found, to look at: a page in one file, and the same in Markdown."""

"""Where the lines of a page are, and in which order they are read."""

"""HTML pages that are one file each, and what is drawn on them; knows nothing about datasets, models or scores."""

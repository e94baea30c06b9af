"""Pages beside their texts in a browser, to be corrected."""

"""Finding the lines on a page of handwriting: ruled or clean, scanned upright or nearly so.

No network, no training: ink is told from paper, the page is set straight, lines are the ridges of blurred ink, and
seams through least ink part them. What lines cannot be found on is refused with a sentence.
"""

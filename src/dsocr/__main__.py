"""`python -m dsocr` is `dsocr`."""

from dsocr.cli import main

main()

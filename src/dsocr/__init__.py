"""DSOCR-HW: teach DeepSeek-OCR to read a particular handwriting."""

__version__ = "0.1.0"

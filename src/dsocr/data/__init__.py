"""From scans and transcriptions to a dataset folder, and back to samples. Knows nothing about models."""

"""The single checks of a dataset folder, a module a subject; `data/checks.py` calls them all."""

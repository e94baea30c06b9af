"""How well a model reads."""

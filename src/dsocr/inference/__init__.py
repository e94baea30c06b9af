"""From images to text with a base or a run."""

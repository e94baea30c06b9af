"""What can be transcribed: which pages there are, and what of each is shown to the model."""

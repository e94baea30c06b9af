"""A server that reads images, for programs."""

"""The model: bases, adapters, and how an image and a prompt become its inputs."""

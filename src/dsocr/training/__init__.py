"""Teaching an adapter."""

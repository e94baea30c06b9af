"""Files, folders, archives and downloads."""

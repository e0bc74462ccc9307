"""runtime.disk: compiled graphs kept on disk, one file each (design D7)."""

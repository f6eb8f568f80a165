"""Files and process limits: atomic writes, checksummed JSON, locks, temporary folders."""

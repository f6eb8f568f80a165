"""Files and the process they are written from: whole or not at all, checksummed JSON, temporary folders, limits."""

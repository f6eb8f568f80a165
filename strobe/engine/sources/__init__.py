"""What a step trains: one step source per kind of batching."""

"""Options and option groups that commands share."""

"""Launching ranks as processes of one machine, monitoring them and diagnosing failures."""

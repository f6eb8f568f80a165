"""Seconds of passes: measured on this machine, fitted, and predicted for other sizes."""

"""Pages: one self-contained HTML file each, readable offline, on a phone and in the dark."""

"""Reports for people: text summaries, SVG charts and HTML pages."""

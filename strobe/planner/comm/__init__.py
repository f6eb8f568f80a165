"""Communication volume and network time, predicted without starting ranks."""

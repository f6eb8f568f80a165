"""The kill campaign's parts: what is run, how it is disturbed, and what must hold afterwards."""

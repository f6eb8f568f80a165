"""Relay of recurrent states along sequences that change ranks: legs, messages, strategy."""

"""The engine in virtual time: the same code on made-up or recorded series, from one thread."""

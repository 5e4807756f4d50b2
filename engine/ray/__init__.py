"""What is known about Ray itself: ids, owners, stable names."""

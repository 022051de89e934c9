"""What is known of the machine, and what was measured on it."""

"""What would be wrong or raise in half precision, and what helps."""

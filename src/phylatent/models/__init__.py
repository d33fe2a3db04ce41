"""The world model and the training-only heads."""

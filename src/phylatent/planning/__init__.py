"""Planning in a latent space, and whether it gets there: search, closed loop, protocols."""

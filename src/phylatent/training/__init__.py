"""Training: the graph, the Lightning module around it, and the run that starts, resumes and ends it."""

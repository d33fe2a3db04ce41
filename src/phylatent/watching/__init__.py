"""A page about runs while they train: read from what training writes, served to this machine only. Nothing is written."""

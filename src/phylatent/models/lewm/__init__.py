"""LeWM, the reference: its files, its names and sizes, and how its weights become ours and back."""

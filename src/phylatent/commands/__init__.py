"""The command line's commands, one module each: read the request, call a room, show what came out.

They import the rooms when they are called: help, and a mistake in the request, must not wait for torch.
"""

"""One file per verb: plain functions that the commands, a server and Python users call."""

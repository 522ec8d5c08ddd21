"""Direct back end of the daemon: requests between its programs, executed from memory to memory."""

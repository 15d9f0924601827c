"""What an attempt needs before it starts: code, a plan, a warm parent."""

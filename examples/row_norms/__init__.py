"""Row norms of W_Q and W_K of every head, against their law under independent normal entries."""

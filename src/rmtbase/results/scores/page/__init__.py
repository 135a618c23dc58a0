"""The HTML page of a scores file."""

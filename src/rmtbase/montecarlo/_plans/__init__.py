"""Plans, the draws of one chunk of a plan, and what else decides about their bits."""

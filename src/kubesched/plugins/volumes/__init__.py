"""The plugins for storage, and what they share."""

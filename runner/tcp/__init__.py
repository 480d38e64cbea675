"""Model TCP for a whole transfer: channels, and stage boundaries that are planned ahead."""

"""Learn a link from a log of its packets: what it is, what else it carried, and how far that is right."""

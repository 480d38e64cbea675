"""What a WAN looks like: named sets of link conditions and their loader."""

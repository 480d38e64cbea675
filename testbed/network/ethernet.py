"""The sizes of Ethernet's frames, without preamble, checksum and gap, which qdiscs do not count."""

MTU_BYTES = 1500
"""The largest IP packet unless a topology says otherwise."""
ETHERNET_HEADER_BYTES = 14
FRAME_BYTES = MTU_BYTES + ETHERNET_HEADER_BYTES

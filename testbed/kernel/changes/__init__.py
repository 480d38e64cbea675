"""WAN ports that change while packets are in them: in place, on time, and read back."""

"""WAN links whose conditions change while a training runs: by a course, a trace, or an outage."""

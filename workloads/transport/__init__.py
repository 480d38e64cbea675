"""Move activations, gradients and sums between ranks: frames, striped TCP connections, the I/O thread.

A rank joins its peers and moves bytes like this::

    plan = LinksConfig(rank=..., pipeline=..., stage=..., peers=(...), previous=..., following=..., ring=(...), ...)
    sockets = Rendezvous(Identity(token, rank, address, listen_port), plan.peers, congestion, note).meet(timeout_ns)
    pool, events = BufferPool(), SimpleQueue[Event]()
    transport = StripedTransport(plan, sockets, pool, events.put)
    transport.start()
    transport.send(iteration, Message(MessageKind.ACTIVATION, microbatch), payload)   # Sent follows in events
    ring = RingAllReduce(plan, transport)
    ring.run(iteration, gradients, element_bytes, add, lambda: heed(events.get()))   # heed gives ring.heed its own
    transport.close()                                                                 # Closed follows in events
"""

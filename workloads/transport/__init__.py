"""Move activations, gradients and ring segments between ranks: frames, striped TCP connections, the I/O thread.

A rank connects to its peers and moves bytes like this::

    config = LinksConfig(rank=..., pipeline=..., stage=..., peers=(...), iterations=..., boundaries=..., rings=...)
    identity = Identity(token, rank, address, listen_port)
    sockets = Rendezvous(identity, config.peers, log).rendezvous(timeout_ns)
    pool, events = BufferPool(), SimpleQueue[Event]()
    transport = StripedTransport(config, sockets, pool, events.put)
    transport.start()
    transport.send(iteration, Message(MessageKind.ACTIVATION, microbatch), payload)   # events receives Sent
    ring = RingAllReduce(config, transport)
    ring.run(iteration, gradients, element_bytes, add, lambda: handle(events.get()))  # handle passes on to ring.handle
    transport.close()                                                                 # events receives Closed
"""

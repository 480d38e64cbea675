"""The configuration of a rank's links: rendezvous, peers, and what goes over each link. Plain data, as JSON."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from wanbed.workloads.transport.frame import CHUNK_BYTES, RUN_TOKEN_BYTES
from wanbed.workloads.transport.peer import Peer
from wanbed.workloads.transport.socket_options import PEER_TIMEOUT_S

DEFAULT_RENDEZVOUS_TIMEOUT_NS = 8_000_000_000


@dataclass(frozen=True)
class RendezvousConfig:
    """The connections of one rank to its peers. Durations are on the testbed's clock.

    - ``listen_address``, ``listen_port``: where peers call it. Every socket of the rank is bound to that address. The
      port must be below the kernel's ephemeral range.
    - ``run_token``: 16 bytes in hexadecimal, the same for all ranks of a trial.
    - ``timeout_ns``: the limit of the rendezvous.
    - ``peer_timeout_s``: for how long a peer may be silent before it is lost: longer than links are known to be down.

    Raises ValueError naming the field.
    """

    listen_address: str
    listen_port: int
    run_token: str
    timeout_ns: int = DEFAULT_RENDEZVOUS_TIMEOUT_NS
    peer_timeout_s: int = PEER_TIMEOUT_S

    def __post_init__(self) -> None:
        for name, least in (("timeout_ns", 1), ("peer_timeout_s", PEER_TIMEOUT_S)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}: {getattr(self, name)} is below {least}")
        if not 1 <= self.listen_port <= 65535:
            raise ValueError(f"listen_port: {self.listen_port} is no port to listen on")
        try:
            token = bytes.fromhex(self.run_token)
        except ValueError:
            token = b""
        if len(token) != RUN_TOKEN_BYTES:
            raise ValueError(f"run_token: write {RUN_TOKEN_BYTES} bytes in hexadecimal")


@dataclass(frozen=True)
class StarConfig:
    """The star of a stage's replicas, the same at all of them but for ``joins``.

    - ``ranks``: those of all replicas. The first one gathers: all others have a connection to it.
    - ``sizes_bytes``: the size of a part and of the sum, for each fragment. Sum n is of fragment n mod their number.
    - ``sums``: how many sums there are in the whole training.
    - ``quorum``: how many replicas a sum waits for. With one, a replica that is lost does not end the others.
    - ``state_bytes``: the size of what a replica gets that comes back; 0 where none does. With it, the rank that
      gathers lets lost replicas connect again.
    - ``connections``: the most connections between two of the ranks.
    - ``joins``: whether this rank comes back to a training under way. Its only peer is then the one that gathers, which
      it calls, and which sends it what it begins with.

    Raises ValueError naming the field.
    """

    ranks: tuple[int, ...]
    sizes_bytes: tuple[int, ...]
    sums: int
    quorum: int | None = None
    connections: int = 1
    state_bytes: int = 0
    joins: bool = False

    def __post_init__(self) -> None:
        if len(set(self.ranks)) != len(self.ranks) or len(self.ranks) < 2:
            raise ValueError(f"ranks: {self.ranks} are not two or more ranks, each once")
        if not self.sizes_bytes or min(self.sizes_bytes) < 1:
            raise ValueError(f"sizes_bytes: {self.sizes_bytes} are not sizes of 1 byte at least")
        if self.sums < 0:
            raise ValueError(f"sums: {self.sums} is negative")
        if self.quorum is not None and not 1 <= self.quorum <= len(self.ranks):
            raise ValueError(f"quorum: {self.quorum} is not 1 to {len(self.ranks)}, the number of replicas")
        if self.connections < 1:
            raise ValueError(f"connections: {self.connections} is below 1")
        if self.state_bytes < 0:
            raise ValueError(f"state_bytes: {self.state_bytes} is negative")
        if self.state_bytes and self.quorum is None:
            raise ValueError("state_bytes: replicas come back only where the others go on without them: give a quorum")
        if self.joins and not self.state_bytes:
            raise ValueError("joins: a replica comes back with what it begins with: give state_bytes")

    @property
    def gatherer(self) -> int:
        """The rank that gathers."""
        return self.ranks[0]

    @property
    def fragments(self) -> int:
        """The number of fragments."""
        return len(self.sizes_bytes)

    def size_bytes(self, number: int) -> int:
        """Return the size of sum ``number``."""
        return self.sizes_bytes[number % len(self.sizes_bytes)]

    def peers_of(self, rank: int) -> tuple[int, ...]:
        """Return the ranks that ``rank`` exchanges parts and sums with."""
        return self.ranks[1:] if rank == self.gatherer else (self.gatherer,)


ANNOUNCED_AT_ONCE = 2
"""The most chunks that a replica announces before they have come."""

NORM_BYTES = 4
"""The size of what goes round the ring of the gradient norm: one number in fp32."""


@dataclass(frozen=True)
class BoundaryConfig:
    """The boundary between a rank's stage and the stage before or after it.

    - ``rank``: the rank of the same pipeline at the other stage.
    - ``transfer_bytes``: the size of an activation, and of its gradient.
    - ``mates``: the ranks of the DP-cell at this rank's own stage, itself included, by ascending pipeline. Each
      transfer is then striped over the links of all of them (temporal sharing). Empty: it goes over its own link alone.
    - ``outgoing_turns``: (pipeline, microbatch) of everything that the DP-cell sends over this boundary in one
      iteration, in the order in which each link sends it. A transfer that is offered early waits for those of its
      pipeline that are listed before it. Empty: first come, first served.
    - ``connections``: the most connections that any of these links has, the same at all ranks of the boundary. The
      number of chunks of a transfer depends on it.

    Raises ValueError naming the field.
    """

    rank: int
    transfer_bytes: int
    mates: tuple[int, ...] = ()
    outgoing_turns: tuple[tuple[int, int], ...] = ()
    connections: int = 1

    def __post_init__(self) -> None:
        if self.rank < 0:
            raise ValueError(f"rank: {self.rank} is below 0")
        if self.connections < 1:
            raise ValueError(f"connections: {self.connections} is below 1")
        if self.transfer_bytes < 1:
            raise ValueError(f"transfer_bytes: {self.transfer_bytes} is below 1")
        if len(set(self.mates)) != len(self.mates) or list(self.mates) != sorted(self.mates):
            raise ValueError(f"mates: {self.mates} are not ranks in ascending order, each once")
        if self.outgoing_turns and not self.mates:
            raise ValueError("outgoing_turns: only a boundary that is shared has turns, name its mates")
        if any(len(turn) != 2 for turn in self.outgoing_turns):
            raise ValueError("outgoing_turns: a turn is a pipeline and a microbatch")


@dataclass(frozen=True)
class BoundariesConfig:
    """The boundaries of a rank's stage, None at a pipeline's end, and how many microbatches cross them an iteration.

    Raises ValueError naming the field.
    """

    previous: BoundaryConfig | None = None
    following: BoundaryConfig | None = None
    microbatches: int = 1

    def __post_init__(self) -> None:
        if self.microbatches < 1:
            raise ValueError(f"microbatches: {self.microbatches} is below 1")

    @property
    def named(self) -> tuple[tuple[str, BoundaryConfig], ...]:
        """The boundaries that there are, each with the name of its field."""
        both = (("previous", self.previous), ("following", self.following))
        return tuple((name, boundary) for name, boundary in both if boundary is not None)


@dataclass(frozen=True)
class ExchangeConfig:
    """All messages between a rank and the peer ``rank`` in one iteration: the size of each, by its number, both ways.

    ``connections`` is the number of connections between the two. Raises ValueError naming the field.
    """

    rank: int
    outgoing_bytes: tuple[int, ...]
    incoming_bytes: tuple[int, ...]
    connections: int = 1

    def __post_init__(self) -> None:
        if self.connections < 1:
            raise ValueError(f"connections: {self.connections} is below 1")
        for name in ("outgoing_bytes", "incoming_bytes"):
            if any(size_bytes < 1 for size_bytes in getattr(self, name)):
                raise ValueError(f"{name}: a message has 1 byte at least")


@dataclass(frozen=True)
class RingConfig:
    """One ring of replicas: their ranks in order, and the most connections between two neighbours.

    ``connections`` and ``piece_bytes``, the size of chunks if that is given, are the same at all ranks of the ring,
    because all must cut the data alike. Raises ValueError naming the field.
    """

    ranks: tuple[int, ...]
    connections: int = 1
    piece_bytes: int | None = None

    def __post_init__(self) -> None:
        if len(set(self.ranks)) != len(self.ranks) or len(self.ranks) < 2:
            raise ValueError(f"ranks: {self.ranks} are not two or more, each once")
        if self.connections < 1:
            raise ValueError(f"connections: {self.connections} is below 1")
        if self.piece_bytes is not None and not 1 <= self.piece_bytes <= CHUNK_BYTES:
            raise ValueError(f"piece_bytes: {self.piece_bytes} is not 1 to {CHUNK_BYTES}")

    def neighbours(self, rank: int) -> tuple[int, int]:
        """Return the ranks before and after ``rank``: the same one twice where there are two replicas."""
        position = self.ranks.index(rank)
        return self.ranks[position - 1], self.ranks[(position + 1) % len(self.ranks)]


@dataclass(frozen=True)
class RingsConfig:
    """The rings that a rank sums over.

    - ``replicas``: those over which the stage's gradients are all-reduced. One of all replicas; or, one in the other,
      one of the replicas in this datacenter and one of the counterparts in the others. Empty for a single replica.
    - ``buckets``: how many buckets the gradients are all-reduced in, one after the other, while the last backward of an
      iteration computes. 0: they are all-reduced as one, after it.
    - ``sums``: how many all-reduces of gradients there are in an iteration: one, or one for each of its flushes.
    - ``synchronizations``: how many all-reduces of pseudo-gradients there are in all iterations. None where the rings
      sum gradients.
    - ``norm``: the ring of all ranks over which the gradient norm is all-reduced in every iteration, None where
      optimizer steps do not wait for it. Its neighbours may be those of another ring.
    - ``chained``: whether the replicas reduce along a chain to the first of their ring, and broadcast from it.
    - ``announced``: whether the replicas sum as Gloo does, and each chunk is sent once the next replica has announced
      that it waits for it.
    - ``butterfly``: whether the replicas sum in a butterfly. Each of ``replicas`` is then a pair of this rank and
      another one.

    Raises ValueError naming the field.
    """

    replicas: tuple[RingConfig, ...] = ()
    buckets: int = 0
    synchronizations: int | None = None
    norm: RingConfig | None = None
    butterfly: bool = False
    sums: int = 1
    chained: bool = False
    announced: bool = False

    def __post_init__(self) -> None:
        if self.butterfly and any(len(ring.ranks) != 2 for ring in self.replicas):
            raise ValueError("butterfly: the replicas exchange pair by pair: give rings of two")
        for name in ("chained", "announced"):
            if getattr(self, name) and (self.butterfly or self.buckets or len(self.replicas) > 1):
                raise ValueError(f"{name}: the replicas sum as one along a single ring: give no other, and no buckets")
        if self.chained and self.announced:
            raise ValueError("announced: the segments of a chain are not: give one of both")
        if self.buckets < 0:
            raise ValueError(f"buckets: {self.buckets} is below 0")
        if self.buckets and not self.replicas:
            raise ValueError(f"buckets: {self.buckets}, and there is no ring to sum them in")
        if self.sums < 1 or (self.sums > 1 and (self.buckets or self.synchronizations is not None)):
            raise ValueError(f"sums: {self.sums} in an iteration, of whole gradients: give 1 or more, and no buckets")
        if self.synchronizations is not None and (self.buckets or not self.replicas):
            raise ValueError("synchronizations: they need a ring that sums no buckets of gradients")

    @property
    def every(self) -> tuple[RingConfig, ...]:
        """The rings, that of the gradient norm last."""
        return self.replicas if self.norm is None else (*self.replicas, self.norm)

    def all_reduces(self, iterations: int) -> int:
        """Return the number of all-reduces over the rings of replicas in so many iterations, which are all."""
        if self.synchronizations is not None:
            return self.synchronizations
        return iterations * max(self.buckets, 1) * self.sums


@dataclass(frozen=True)
class LinksConfig:
    """The configuration of one rank's transport.

    - ``peers``: all ranks that it connects to: those across its boundaries, the cell mates, those of its exchanges, its
      neighbours in each ring, and those of its star.
    - ``iterations``: their number; a message beyond them is refused.
    - ``first_iteration``: the one that the rank begins with; transfers of earlier ones are over.
    - ``exchanges``: the messages of virtual stages, or of a trace, which go between any two ranks. There are then no
      boundaries.
    - ``star``: the star over which the replicas of the stage sum, None where they do not.
    - ``window_bytes``: the receive window of each connection, None to let the kernel choose it.
    - ``on_request``: whether a message between stages is sent only once its receiver has asked for it. Boundaries then
      have no turns.

    Raises ValueError naming the field.
    """

    rank: int
    pipeline: int
    stage: int
    peers: tuple[Peer, ...]
    iterations: int
    boundaries: BoundariesConfig = BoundariesConfig()
    exchanges: tuple[ExchangeConfig, ...] = ()
    rings: RingsConfig = RingsConfig()
    star: StarConfig | None = None
    window_bytes: int | None = None
    first_iteration: int = 0
    on_request: bool = False

    def __post_init__(self) -> None:
        if self.window_bytes is not None and self.window_bytes < 1:
            raise ValueError(f"window_bytes: {self.window_bytes} is below 1")
        counts = (("rank", 0), ("pipeline", 0), ("stage", 0), ("first_iteration", 0), ("iterations", 1))
        for name, least in counts:
            if getattr(self, name) < least:
                raise ValueError(f"{name}: {getattr(self, name)} is below {least}")
        self._check_peers()
        for name, boundary in self.boundaries.named:
            self._check_boundary(f"boundaries.{name}", boundary)
            if self.on_request and boundary.outgoing_turns:
                raise ValueError(f"on_request: what is sent in turns, as boundaries.{name} has them, is not asked for")
        if self.exchanges and self.boundaries.named:
            raise ValueError("exchanges: a rank has stage boundaries or exchanges, not both")
        for exchange in self.exchanges:
            self._need_peer("exchanges", exchange.rank)
        self._check_rings()
        self._check_star()

    def joining(self, ports: Mapping[int, int]) -> "LinksConfig":
        """Return the links with which this replica of a star comes back: to the rank that gathers, which it calls.

        ``ports`` has the ports that ranks listen on. Raise ValueError if no replica can come back here.
        """
        if self.star is None:
            raise ValueError("star: only a replica of a star comes back, and there is none")
        gatherer = self.star.gatherer
        peers = tuple(replace(peer, port=ports[gatherer]) for peer in self.peers if peer.rank == gatherer)
        return replace(self, peers=peers, star=replace(self.star, joins=True))

    def _check_peers(self) -> None:
        ranks = [peer.rank for peer in self.peers]
        if len(set(ranks)) != len(ranks):
            raise ValueError("peers: a rank is named twice")
        for index, peer in enumerate(self.peers):
            if peer.rank == self.rank:
                raise ValueError(f"peers.{index}.rank: {peer.rank} is this rank itself")
            for name in ("connections", "unsent_bytes", "unread_bytes"):
                if (count := getattr(peer, name)) < 1:
                    raise ValueError(f"peers.{index}.{name}: {count} is below 1")
            if peer.rank > self.rank and (peer.port is None or not 1 <= peer.port <= 65535):
                raise ValueError(f"peers.{index}.port: {peer.port} is no port to call rank {peer.rank} at")

    def _check_boundary(self, name: str, boundary: BoundaryConfig) -> None:
        self._need_peer(f"{name}.rank", boundary.rank)
        if not boundary.mates:
            return
        if self.rank not in boundary.mates:
            raise ValueError(f"{name}.mates: rank {self.rank} itself is not among them")
        if boundary.rank in boundary.mates:
            raise ValueError(f"{name}.mates: rank {boundary.rank} is of the other stage")
        for rank in boundary.mates:
            if rank != self.rank:
                self._need_peer(f"{name}.mates", rank)
        first = self.pipeline - boundary.mates.index(self.rank)
        if first < 0:
            raise ValueError(
                f"{name}.mates: there are fewer pipelines before {self.pipeline} than mates before this rank"
            )
        if boundary.outgoing_turns:
            pipelines = range(first, first + len(boundary.mates))
            expected = sorted(
                (pipeline, microbatch) for pipeline in pipelines for microbatch in range(self.boundaries.microbatches)
            )
            if sorted(boundary.outgoing_turns) != expected:
                raise ValueError(
                    f"{name}.outgoing_turns: not every microbatch of the pipelines {pipelines.start} to "
                    f"{pipelines.stop - 1} once"
                )

    def _check_star(self) -> None:
        if self.star is None:
            return
        if self.rank not in self.star.ranks:
            raise ValueError(f"star: rank {self.rank} itself is not in it")
        if self.star.joins and self.rank == self.star.gatherer:
            raise ValueError("star.joins: only a replica comes back, not the one that gathers")
        for rank in self.star.peers_of(self.rank):
            self._need_peer("star", rank)

    def _check_rings(self) -> None:
        if self.rings.norm is not None:
            self._check_ring("rings.norm", self.rings.norm)
        seen: set[int] = set()
        for number, ring in enumerate(self.rings.replicas):
            name = f"rings.replicas.{number}"
            self._check_ring(name, ring)
            others = {rank for rank in ring.ranks if rank != self.rank}
            # A link belongs to one ring, so that its chunks need not say which one they are of.
            if both := sorted(seen & others):
                raise ValueError(f"{name}.ranks: rank {both[0]} is in another ring with rank {self.rank}")
            seen |= others

    def _check_ring(self, name: str, ring: RingConfig) -> None:
        if self.rank not in ring.ranks:
            raise ValueError(f"{name}.ranks: rank {self.rank} itself is not among them")
        for rank in ring.neighbours(self.rank):
            self._need_peer(f"{name}.ranks", rank)

    def _need_peer(self, name: str, rank: int) -> None:
        if all(peer.rank != rank for peer in self.peers):
            raise ValueError(f"{name}: rank {rank} is none of the peers")

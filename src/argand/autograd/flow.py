"""autograd.flow: minimum cut of a network.  In: capacities.  Out: the cut nearest to the sink.

Dinic's algorithm on flat lists; networks of the partitioner have long chains and few phases.
"""

from __future__ import annotations

from typing import Final, final

INFINITE: Final = 1 << 60


@final
class Network:
    """A flow network; vertex 0 is the source, vertex 1 the sink."""

    def __init__(self) -> None:
        self.edges: list[list[int]] = [[], []]  # per vertex: numbers of the edges leaving it
        self.heads: list[int] = []  # edge e goes to heads[e]; e ^ 1 is its reverse
        self.room: list[int] = []  # what may still flow along an edge

    def vertex(self) -> int:
        """A new vertex."""
        self.edges.append([])
        return len(self.edges) - 1

    def edge(self, tail: int, head: int, capacity: int) -> None:
        """A new edge."""
        self.edges[tail].append(len(self.heads))
        self.edges[head].append(len(self.heads) + 1)
        self.heads += (head, tail)
        self.room += (capacity, 0)

    def cut(self) -> list[bool]:
        """Per vertex: whether it lies on the sink's side of the minimum cut nearest the sink."""
        while (levels := self._levels()) is not None:
            self._block(levels)
        return self._reaches_sink()

    def _levels(self) -> list[int] | None:
        """Distance from the source in the residual network; None when the sink is cut off."""
        levels = [-1] * len(self.edges)
        levels[0] = 0
        queue = [0]
        heads, room, edges = self.heads, self.room, self.edges
        for vertex in queue:
            below = levels[vertex] + 1
            for e in edges[vertex]:
                head = heads[e]
                if room[e] and levels[head] < 0:
                    levels[head] = below
                    queue.append(head)
        return levels if levels[1] >= 0 else None

    def _block(self, levels: list[int]) -> None:
        """Send flow along shortest paths until none is left."""
        heads, room, edges = self.heads, self.room, self.edges
        following = [0] * len(edges)
        path: list[int] = []
        vertex = 0
        while True:
            if vertex == 1:
                flow = min(room[e] for e in path)
                full = len(path)
                for place, e in enumerate(path):
                    room[e] -= flow
                    room[e ^ 1] += flow
                    if not room[e] and place < full:
                        full = place
                vertex = heads[path[full] ^ 1]
                del path[full:]
                continue
            leaving = edges[vertex]
            at = following[vertex]
            while at < len(leaving):
                e = leaving[at]
                if room[e] and levels[heads[e]] == levels[vertex] + 1:
                    break
                at += 1
            following[vertex] = at
            if at < len(leaving):
                path.append(leaving[at])
                vertex = heads[leaving[at]]
            elif path:
                levels[vertex] = -1  # a dead end in this phase
                vertex = heads[path.pop() ^ 1]
            else:
                return

    def _reaches_sink(self) -> list[bool]:
        reaches = [False] * len(self.edges)
        reaches[1] = True
        queue = [1]
        for vertex in queue:
            for e in self.edges[vertex]:
                tail = self.heads[e]
                if self.room[e ^ 1] and not reaches[tail]:
                    reaches[tail] = True
                    queue.append(tail)
        return reaches

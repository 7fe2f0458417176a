"""Stop strings in a stream: text that may be the start of one is held back until it is known.

>>> stops = StopFilter(("END",))
>>> stops.push("the E"), stops.push("NDless")
('the ', '')
>>> stops.stopped
True
"""

__all__ = ["StopFilter"]


class StopFilter:
    """Passes text on up to the first stop string. After `stopped`, everything is swallowed."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = stops
        self._held = ""
        self.stopped = False

    def push(self, text: str) -> str:
        """The text that is now known to stand before any stop string."""
        if self.stopped or not self._stops:
            return "" if self.stopped else text
        self._held += text
        found = [at for at in (self._held.find(stop) for stop in self._stops) if at >= 0]
        if found:
            self.stopped = True
            ready, self._held = self._held[: min(found)], ""
            return ready
        keep = max(self._overlap(stop) for stop in self._stops)
        cut = len(self._held) - keep
        ready, self._held = self._held[:cut], self._held[cut:]
        return ready

    def finish(self) -> str:
        """What was held back and turned out not to be a stop string."""
        ready, self._held = self._held, ""
        return ready

    def _overlap(self, stop: str) -> int:
        """How many characters at the end of the held text begin `stop`."""
        return next((n for n in range(min(len(stop) - 1, len(self._held)), 0, -1) if self._held.endswith(stop[:n])), 0)

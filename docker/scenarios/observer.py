"""Reads what the traffic of each node says, and answers questions about the whole."""

import json
import threading
import time


class Observer:
    def __init__(self, timeline):
        self.timeline = timeline
        self.changed = threading.Condition()
        self.lines = []  # (node, body) of everything but tallies, in the order in which they came
        self.views = {}  # node -> {name: (state, incarnation)}
        self.incarnations = {}  # node -> of its service
        self.tallies = {}  # node -> the tallies of its traffic processes: the last of each
        self.readers = {}

    def follow(self, node, stream):
        self.tallies.setdefault(node, []).append({})
        reader = threading.Thread(target=self._read, args=(node, stream), daemon=True)
        self.readers[node] = reader
        reader.start()

    def wait_closed(self, node):
        self.readers[node].join(10)

    def end_work(self, streams, patience_s):
        """Tells the traffic of these nodes (node -> its input) to stop, and waits for the last
        words of each."""
        for stream in streams.values():
            try:
                stream.write(b"\n")
                stream.flush()
            except BrokenPipeError:
                pass

        def all_ended():
            return all(self.tallies[node][-1].get("final") or not self.readers[node].is_alive()
                       for node in streams)
        with self.changed:
            self.changed.wait_for(all_ended, patience_s)

    def _read(self, node, stream):
        for line in stream:
            try:
                body = json.loads(line)
            except ValueError:
                continue
            with self.changed:
                self._take(node, body)
                self.changed.notify_all()
        with self.changed:
            self.changed.notify_all()

    def _take(self, node, body):
        event = body["event"]
        if event == "tally":
            self.tallies[node][-1] = body
            return
        self.lines.append((node, body))
        if event == "start":
            self.incarnations[node] = body["incarnation"]
        elif event == "view":
            self.views[node] = {each["node"]: (each["state"], each["incarnation"])
                                for each in body["nodes"]}
        elif event == "wrong":
            self.timeline.note(f"WRONG PAGES from node {node} to {body['to']}: {body['pages']}")

    # -- questions --------------------------------------------------------------------------------

    def wait(self, condition, patience_s):
        """Waits for it; returns whether it came true."""
        with self.changed:
            return self.changed.wait_for(condition, patience_s)

    def sees_all(self, node, others, names):
        """Whether the node has exactly these connected, under their newest incarnations."""
        view = self.views.get(node, {})
        connected = {name: incarnation for name, (state, incarnation) in view.items()
                     if state == "connected"}
        return connected == {names[other]: self.incarnations.get(other) for other in others}

    def converged(self, nodes, names):
        return all(self.sees_all(node, [n for n in nodes if n != node], names) for node in nodes)

    def since(self, event, begin):
        """Lines of that kind that were said at or after `begin` (unix seconds)."""
        return [(node, body) for node, body in self.lines
                if body["event"] == event and body["unix_ms"] >= int(begin * 1000)]

    def first_verified(self, node, name, begin):
        """Seconds from `begin` to the first verified transfer to or from the node; None: none."""
        times = [body["unix_ms"] / 1000 - begin for other, body in self.since("first", begin)
                 if other == node or body["to"] == name]
        return min(times, default=None)

    def told(self, kind, name, begin):
        """node -> seconds from `begin` to its service's event about the member."""
        times = {}
        for node, body in self.since("member", begin):
            member = body["member"]
            if member["event"] == f"member_{kind}" and member["node"] == name:
                times.setdefault(node, body["unix_ms"] / 1000 - begin)
        return times

    def total(self, key):
        with self.changed:
            return sum(tally.get(key, 0) for all_of_node in self.tallies.values()
                       for tally in all_of_node)

    def open(self):
        """Transfers that had no end when their traffic said its last words."""
        with self.changed:
            return sum(tally.get("open", 0) for all_of_node in self.tallies.values()
                       for tally in all_of_node if tally.get("final"))

    def without_last_words(self):
        """Nodes of which a traffic process was killed."""
        with self.changed:
            return [node for node, all_of_node in self.tallies.items()
                    if not all(tally.get("final") for tally in all_of_node)]

    def causes(self, key):
        sums = {}
        with self.changed:
            for all_of_node in self.tallies.values():
                for tally in all_of_node:
                    for code, count in tally.get(key, {}).items():
                        sums[code] = sums.get(code, 0) + count
        return sums


class Timeline:
    """Prints what happens, with the seconds since the beginning."""

    def __init__(self, quiet=False):
        self.begin = time.time()
        self.quiet = quiet
        self.notes = []

    def note(self, text):
        seconds = time.time() - self.begin
        self.notes.append([round(seconds, 3), text])
        if not self.quiet:
            print(f"{seconds:8.2f} s  {text}", flush=True)

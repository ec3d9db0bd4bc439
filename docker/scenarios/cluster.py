"""What a scenario may do to a cluster, whatever it is made of. Nodes are numbers from 0."""

import abc
import contextlib

STOP_PATIENCE_S = 30


class Cluster(abc.ABC):
    """Nodes that exist (created, running or not) are in `nodes`, their traffic processes in
    `traffic`."""

    nodes: list
    traffic: dict
    observer: object  # an Observer, who reads what the traffic says
    # Nodes of which a traffic process ended without last words because the service did.
    silenced: set

    @abc.abstractmethod
    def name(self, node):
        """As the other nodes call it."""

    @abc.abstractmethod
    def start(self, node):
        """Starts its service, at the address that it had before, and its traffic. Returns the time
        at which the service's process was started."""

    @abc.abstractmethod
    def signal(self, node, number):
        """To the service; KILL ends its traffic too where both share a container."""

    @abc.abstractmethod
    def drain(self, asked, node, deadline_s):
        """`penstock drain`, asked of the service of the node `asked`. Returns its exit code."""

    @abc.abstractmethod
    def wait_ended(self, node, patience_s):
        """Waits for the end of the service; its exit code (negative: by signal), or None."""

    @abc.abstractmethod
    def running(self, node):
        pass

    @abc.abstractmethod
    def partition(self, sides):
        """sides: node -> 0 or 1."""

    @abc.abstractmethod
    def heal(self):
        pass

    @abc.abstractmethod
    def resources(self, node):
        """{"open_files": n, "rss_kib": n} of the service."""

    @abc.abstractmethod
    def log_tail(self, node, lines=20):
        pass

    @abc.abstractmethod
    def copy_logs(self, folder):
        pass

    @abc.abstractmethod
    def close(self):
        """Ends the traffic in an orderly way, then the services."""

    def ask_traffic_to_end(self):
        """Of the nodes that run: what is under way ends, then the processes. Returns those nodes."""
        streams = {node: process.stdin for node, process in self.traffic.items()
                   if self.running(node)}
        self.observer.end_work(streams, STOP_PATIENCE_S)
        for stream in streams.values():
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        return set(streams)

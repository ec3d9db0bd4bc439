"""The seven scenarios. Each is a function of a Run; the traffic between all members goes on through
all of it. What must hold is checked with run.check(), which goes on: the report shows all that did
not hold."""

import random
import signal
import time

MEETING_PATIENCE_S = 60
END_PATIENCE_S = 40


class Run:
    """A scenario under way: the cluster, what is seen of it, and what was measured."""

    def __init__(self, cluster, observer, timeline, options):
        self.cluster = cluster
        self.observer = observer
        self.timeline = timeline
        self.options = options
        self.random = random.Random(options.seed)
        self.members = []  # nodes that should see each other
        self.joins = []  # {"node", "verified_s", "converged_s"}
        self.deaths = []  # {"node", "how", "told_s": {node: s}, "converged_s"}
        self.broken = []  # what did not hold
        self.excuses = []  # (from, until, nodes): failures that concern them are no surprise
        self.numbers = {}

    def check(self, good, text):
        if not good:
            self.broken.append(text)
            self.timeline.note(f"DOES NOT HOLD: {text}")
        return good

    def names(self):
        return {node: self.cluster.name(node) for node in self.cluster.nodes}

    def wait(self, condition, what, patience_s=MEETING_PATIENCE_S):
        """Waits for it; returns the seconds that it took, None when it did not come true."""
        begin = time.time()
        if self.check(self.observer.wait(condition, patience_s), f"within {patience_s} s: {what}"):
            return time.time() - begin
        return None

    def converged(self, begin, patience_s=MEETING_PATIENCE_S):
        """Waits until all members see exactly each other; seconds since `begin`."""
        names = self.names()
        members = list(self.members)
        reached = self.wait(lambda: self.observer.converged(members, names),
                            f"nodes {members} see exactly each other", patience_s)
        return None if reached is None else time.time() - begin

    def hold(self, seconds=None):
        """Lets the traffic run."""
        time.sleep(self.options.settle if seconds is None else seconds)

    # -- what is done to nodes --------------------------------------------------------------------

    def join(self, *nodes):
        """Starts them and waits until they take part and all see each other."""
        begins = {node: self.cluster.start(node) for node in nodes}
        for node in nodes:
            if node not in self.members:
                self.members.append(node)
        self.timeline.note(f"start of {said(nodes)}")
        names = self.names()
        alone = len(self.members) == 1
        for node, begin in begins.items():
            seen = None
            if not alone:
                self.wait(lambda n=node, b=begin: self.observer.first_verified(n, names[n], b)
                          is not None, f"a verified transfer with node {node}")
                seen = self.observer.first_verified(node, names[node], begin)
            converged = self.converged(begin)
            self.joins.append({"node": node, "verified_s": seen, "converged_s": converged})
            if seen is not None and converged is not None:
                self.timeline.note(f"node {node}: first verified transfer after {seen:.2f} s, "
                                   f"all see each other after {converged:.2f} s")

    def excused(self, nodes, begin=None):
        """Failures that concern these nodes are no surprise from now until forgive_until()."""
        self.excuses.append([time.time() if begin is None else begin, None, set(nodes)])
        return self.excuses[-1]

    @staticmethod
    def end_excuse(excuse, grace_s=1.0):
        excuse[1] = time.time() + grace_s

    def leave(self, node, how):
        """Drains it (`how`: drain, asked of another node, or SIGTERM): it ends with 0."""
        begin = time.time()
        self.timeline.note(f"{how} of node {node}")
        self.members.remove(node)
        if how == "drain":
            code = self.cluster.drain(self.members[0], node, 20)
            self.check(code == 0, f"`penstock drain` of node {node} exits with 0, not {code}")
        else:
            self.cluster.signal(node, signal.SIGTERM)
        code = self.cluster.wait_ended(node, END_PATIENCE_S)
        self.check(code == 0, f"node {node} exits with 0 after its drain, not {code}")
        took = time.time() - begin
        converged = self.converged(begin)
        self.timeline.note(f"node {node} has ended after {took:.2f} s")
        self.numbers.setdefault("drains_s", []).append(round(took, 3))
        return converged

    def death(self, node, how, begin):
        """The node was killed, stopped or cut off at `begin`: waits until all others know."""
        self.members.remove(node)
        name = self.cluster.name(node)
        observers = list(self.members)

        def known():
            told = self.observer.told("dead", name, begin)
            return all(each in told for each in observers)

        self.wait(known, f"all others hear that node {node} is dead")
        told = {n: round(s, 3) for n, s in self.observer.told("dead", name, begin).items()
                if n in observers}
        converged = self.converged(begin)
        self.deaths.append({"node": node, "how": how, "told_s": told, "converged_s": converged})
        if told:
            self.timeline.note(f"death of node {node} known after {min(told.values()):.2f} to "
                               f"{max(told.values()):.2f} s")

    def kill(self, node):
        excuse = self.excused([node])
        begin = time.time()
        self.cluster.signal(node, signal.SIGKILL)
        self.timeline.note(f"kill -9 of node {node}")
        self.death(node, "kill", begin)
        return excuse

    def pause(self, node, seconds):
        """SIGSTOP until it is thought dead, and for `seconds` at least; then SIGCONT."""
        excuse = self.excused([node])
        begin = time.time()
        self.cluster.signal(node, signal.SIGSTOP)
        self.timeline.note(f"SIGSTOP of node {node}")
        self.death(node, "pause", begin)
        time.sleep(max(0.0, begin + seconds - time.time()))
        begin = time.time()
        self.cluster.signal(node, signal.SIGCONT)
        self.timeline.note(f"SIGCONT of node {node}")
        self.members.append(node)
        self.back(node, begin, excuse)

    def back(self, node, begin, excuse):
        converged = self.converged(begin)
        self.end_excuse(excuse)
        if converged is not None:
            self.timeline.note(f"node {node} is back among all after {converged:.2f} s")
        self.numbers.setdefault("back_s", []).append(converged)

    def split(self, sides, seconds):
        """Two sides that do not reach each other, for `seconds`."""
        groups = [[n for n in self.members if sides[n] == side] for side in (0, 1)]
        excuse = self.excused(self.members)
        excuse.append(sides)  # only between the sides
        begin = time.time()
        self.cluster.partition(sides)
        self.timeline.note(f"partition: {groups[0]} | {groups[1]}")
        names = self.names()
        found = self.wait(lambda: all(self.observer.converged(group, names) for group in groups),
                          "each side sees exactly itself")
        if found is not None:
            self.timeline.note(f"each side sees exactly itself after {time.time() - begin:.2f} s")
        self.numbers["apart_s"] = found
        before = self.verified()
        time.sleep(max(1.0, begin + seconds - time.time()))
        after = self.verified()
        for side, group in enumerate(groups):
            if len(group) > 1:
                pages = sum(after[n] - before[n] for n in group)
                self.check(pages > 0, f"side {side} goes on among itself")
        self.cluster.heal()
        begin = time.time()
        self.timeline.note("healed")
        converged = self.converged(begin)
        self.end_excuse(excuse)
        if converged is not None:
            self.timeline.note(f"all see each other after {converged:.2f} s")
        self.numbers["healed_s"] = converged

    def verified(self):
        with self.observer.changed:
            return {n: sum(t.get("verified_pages", 0) for t in tallies)
                    for n, tallies in self.observer.tallies.items()}

    # -- failures ---------------------------------------------------------------------------------

    def surprises(self):
        """Transfers that did not end as done although nothing had happened to their two nodes. What
        was refused, or lost with the service that had it, is not among them."""
        index = {name: node for node, name in self.names().items()}
        found = []
        for node, body in self.observer.since("not_done", 0):
            if body["state"] in ("refused", "lost"):
                continue
            pair = {node, index.get(body["to"], -1)}
            when = body["unix_ms"] / 1000
            if not any(excuses(excuse, pair, when) for excuse in self.excuses):
                found.append({"from": node, "to": index.get(body["to"]), "state": body["state"],
                              "code": body["code"], "message": body["message"]})
        return found


def excuses(excuse, pair, when):
    begin, until, nodes, *sides = excuse
    if when < begin or (until is not None and when > until) or not pair & nodes:
        return False
    return not sides or len({sides[0].get(node) for node in pair}) == 2


def said(nodes):
    return f"node {nodes[0]}" if len(nodes) == 1 else f"nodes {', '.join(map(str, nodes))}"


# -- the scenarios --------------------------------------------------------------------------------


def scale_out(run):
    """Starts with two nodes; the others join one after the other."""
    run.join(0, 1)
    run.hold()
    for node in range(2, run.options.nodes):
        run.join(node)
        run.hold()


def scale_in(run):
    """All but two leave, by drain and by SIGTERM in turn, with transfers in flight."""
    run.join(*range(run.options.nodes))
    run.hold()
    for count, node in enumerate(range(run.options.nodes - 1, 1, -1)):
        run.leave(node, ("drain", "SIGTERM")[count % 2])
        run.hold()


def rolling_restart(run):
    """Every node in turn is drained and started again."""
    run.join(*range(run.options.nodes))
    run.hold()
    for node in range(run.options.nodes):
        run.leave(node, "SIGTERM")
        run.join(node)
        run.hold()


def crash(run):
    """A node is killed, stays away until all know, and comes back; then another, back at once."""
    run.join(*range(run.options.nodes))
    run.hold()
    victim = run.random.randrange(run.options.nodes)
    excuse = run.kill(victim)
    run.hold()
    run.join(victim)
    run.end_excuse(excuse)
    run.hold()
    victim = (victim + 1) % run.options.nodes
    excuse = run.excused([victim])
    run.cluster.signal(victim, signal.SIGKILL)
    run.cluster.wait_ended(victim, END_PATIENCE_S)
    run.timeline.note(f"kill -9 of node {victim}, which comes back at once")
    run.join(victim)
    run.end_excuse(excuse)
    run.hold()


def pause(run):
    """A node is stopped for longer than it takes to be thought dead, and continues."""
    run.join(*range(run.options.nodes))
    run.hold()
    run.pause(run.random.randrange(run.options.nodes), run.options.away)
    run.hold()


def partition(run):
    """The first two nodes and the rest do not reach each other for a while."""
    run.join(*range(run.options.nodes))
    run.hold()
    run.split({node: 0 if node < 2 else 1 for node in run.members}, run.options.away)
    run.hold()


def churn(run):
    """Random kills, drains, pauses and joins for some minutes; the seed decides."""
    run.join(*range(run.options.nodes))
    run.hold()
    end = time.monotonic() + run.options.minutes * 60
    down, steps = [], {}
    while time.monotonic() < end:
        choices = []
        if len(run.members) > 2:
            choices += ["kill", "drain", "SIGTERM", "pause"]
        if down:
            choices += ["join"] * 3
        step = run.random.choice(choices)
        steps[step] = steps.get(step, 0) + 1
        if step == "join":
            node, excuse = down.pop(run.random.randrange(len(down)))
            run.join(node)
            if excuse:
                run.end_excuse(excuse)
        else:
            node = run.random.choice(run.members)
            if step == "kill":
                down.append((node, run.kill(node)))
            elif step == "pause":
                run.pause(node, 0)
            else:
                run.leave(node, step)
                down.append((node, None))
        run.hold(run.options.settle * run.random.random())
    run.numbers["steps"] = steps
    for node, excuse in down:
        run.join(node)
        if excuse:
            run.end_excuse(excuse)
    run.hold()


ALL = {
    "scale-out": scale_out,
    "scale-in": scale_in,
    "rolling-restart": rolling_restart,
    "crash": crash,
    "pause": pause,
    "partition": partition,
    "churn": churn,
}

"""What a service holds of its machine, and whether that stays the same."""

import glob
import os
import time

# Beyond these a later look at the same process is no longer flat. The allocator keeps some memory
# of whatever burst was the largest yet.
MEMORY_PART = 0.10
MEMORY_KIB = 16 * 1024
COUNTS = {"threads": 0, "open_files": 2, "tcp_sockets": 2, "segments": 0}
# A connection to a node that has just left needs a moment until it is given up.
PATIENCE_S = 20


def look(pid, name):
    """Of the service `name`, which is the process `pid`."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        status = dict(line.split(":", 1) for line in file)
    sockets, files = set(), 0
    for entry in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{entry}")
        except FileNotFoundError:
            continue
        files += 1
        if target.startswith("socket:["):
            sockets.add(target[len("socket:["):-1])
    return {
        # Without the regions, which count as shared, and grow as their pages are touched.
        "memory_kib": int(status["RssAnon"].split()[0]),
        "threads": int(status["Threads"]),
        "open_files": files,
        "tcp_sockets": len(sockets & _inodes(pid)),
        "segments": len(glob.glob(f"/dev/shm/penstock.{name}[-.]*")),
    }


def _inodes(pid):
    found = set()
    for table in ("tcp", "tcp6"):
        with open(f"/proc/{pid}/net/{table}", encoding="ascii") as file:
            found |= {line.split()[9] for line in list(file)[1:]}
    return found


def growth(first, later):
    """What is not flat, in words."""
    found = [f"{what} {first[what]} -> {later[what]}" for what, more in COUNTS.items()
             if later[what] > first[what] + more]
    if later["memory_kib"] > first["memory_kib"] * (1 + MEMORY_PART) + MEMORY_KIB:
        found.append(f"memory {first['memory_kib']} -> {later['memory_kib']} KiB")
    return found


def course(memory, parts=5):
    """So many values, evenly spaced, of [(seconds, KiB)] from its first to its last."""
    if not memory:
        return []
    begin, end = memory[0][0], memory[-1][0]
    wanted = [begin + (end - begin) * part / (parts - 1) for part in range(parts)]
    return [min(memory, key=lambda each: abs(each[0] - when))[1] for when in wanted]


class Watch:
    """First and latest look at each process, and the memory it had at each."""

    def __init__(self, warm_s):
        self.warm_s = warm_s  # a process is as it will be after so long
        self.born, self.first, self.last, self.memory = {}, {}, {}, {}

    def look(self, pid, name, warm=True):
        """`warm`: the first look at it counts as soon as it has lived for warm_s."""
        self.born.setdefault(pid, time.monotonic())
        if not warm or time.monotonic() < self.born[pid] + self.warm_s:
            return
        seen = look(pid, name)
        end = time.monotonic() + PATIENCE_S
        while pid in self.first and growth(self.first[pid][1], seen) and time.monotonic() < end:
            time.sleep(0.5)
            seen = look(pid, name)
        self.first.setdefault(pid, (name, seen))
        self.last[pid] = (name, seen)
        self.memory.setdefault(pid, []).append(
            (round(time.monotonic() - self.born[pid]), seen["memory_kib"]))

    def compared(self):
        """[{"node", "first", "last", "grown", "memory"}] of all that were looked at."""
        return [{"node": name, "first": first, "last": self.last[pid][1],
                 "grown": growth(first, self.last[pid][1]), "memory": self.memory[pid]}
                for pid, (name, first) in self.first.items()]

"""The memory and the page lists that every system is given: the same for all of them."""

import mmap
import os

import numpy as np

SLICE_BYTES = 16 << 20


class Segment:
    """Shared memory in /dev/shm, mapped by every process that takes part."""

    def __init__(self, name, size, create=False):
        self.name, self.size = name, size
        flags = os.O_RDWR | (os.O_CREAT | os.O_EXCL if create else 0)
        descriptor = os.open("/dev/shm/" + name, flags, 0o600)
        try:
            if create:
                os.posix_fallocate(descriptor, 0, size)
            self._map = mmap.mmap(descriptor, size)
        finally:
            os.close(descriptor)
        self.bytes = np.frombuffer(self._map, dtype=np.uint8)

    @property
    def address(self):
        return self.bytes.ctypes.data

    def unlink(self):
        os.unlink("/dev/shm/" + self.name)

    def fill_random(self, seed):
        generator = np.random.default_rng(seed)
        words = self.bytes.view(np.uint64)
        step = SLICE_BYTES // 8
        for at in range(0, len(words), step):
            part = words[at:at + step]
            part[:] = generator.integers(0, 1 << 64, len(part), dtype=np.uint64)

    def clear_pages(self, page_bytes, pages):
        rows = self.bytes.reshape(-1, page_bytes)
        step = max(1, SLICE_BYTES // page_bytes)
        for at in range(0, len(pages), step):
            rows[pages[at:at + step]] = 0


def page_lists(region_bytes, round_bytes, page_bytes, seed):
    """Random pages of the source and as many random places at the destination, none twice."""
    generator = np.random.default_rng([seed, page_bytes])
    count = round_bytes // page_bytes
    source = generator.permutation(region_bytes // page_bytes)[:count]
    destination = generator.permutation(region_bytes // page_bytes)[:count]
    return source.astype(np.uint32), destination.astype(np.uint32)


def different_pages(source, destination, page_bytes, lists):
    """How many pages at the destination are not what they should be; every byte is compared."""
    from_rows = source.bytes.view(np.uint64).reshape(-1, page_bytes // 8)
    to_rows = destination.bytes.view(np.uint64).reshape(-1, page_bytes // 8)
    step = max(1, SLICE_BYTES // page_bytes)
    wrong = 0
    for at in range(0, len(lists[0]), step):
        expected = from_rows[lists[0][at:at + step]]
        found = to_rows[lists[1][at:at + step]]
        wrong += int(np.count_nonzero((expected != found).any(axis=1)))
    return wrong

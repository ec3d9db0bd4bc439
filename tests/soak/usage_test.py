#!/usr/bin/env python3
"""What counts as growth, tried on this process."""

import os
import socket
import threading
import unittest

import usage


class Usage(unittest.TestCase):
    def grown_by(self, harm, undo):
        before = usage.look(os.getpid(), "nobody")
        self.assertEqual(usage.growth(before, usage.look(os.getpid(), "nobody")), [])
        kept = harm()
        try:
            return " ".join(usage.growth(before, usage.look(os.getpid(), "nobody")))
        finally:
            undo(kept)

    def test_descriptors_that_stay_open_are_growth(self):
        grown = self.grown_by(lambda: [os.open("/dev/null", os.O_RDONLY) for _ in range(4)],
                              lambda files: [os.close(file) for file in files])
        self.assertIn("open_files", grown)

    def test_sockets_that_stay_open_are_growth(self):
        grown = self.grown_by(lambda: [socket.create_server(("127.0.0.1", 0)) for _ in range(4)],
                              lambda sockets: [each.close() for each in sockets])
        self.assertIn("tcp_sockets", grown)

    def test_memory_that_stays_taken_is_growth(self):
        grown = self.grown_by(lambda: bytearray(b"x") * (64 << 20), lambda _: None)
        self.assertIn("memory", grown)

    def test_threads_that_stay_are_growth(self):
        end = threading.Event()
        thread = threading.Thread(target=end.wait)

        def harm():
            thread.start()

        def undo(_):
            end.set()
            thread.join()
        self.assertIn("threads", self.grown_by(harm, undo))

    def test_segments_that_stay_are_growth(self):
        path = f"/dev/shm/penstock.usage-test-{os.getpid()}-kv"
        before = usage.look(os.getpid(), f"usage-test-{os.getpid()}")
        with open(path, "wb"):
            pass
        try:
            after = usage.look(os.getpid(), f"usage-test-{os.getpid()}")
        finally:
            os.unlink(path)
        self.assertIn("segments", " ".join(usage.growth(before, after)))

    def test_the_course_of_memory_is_told_from_first_to_last_look(self):
        memory = [(20, 100), (30, 150), (40, 180), (50, 190), (60, 195)]
        self.assertEqual(usage.course(memory, 3), [100, 180, 195])
        self.assertEqual(usage.course(memory[:1], 3), [100, 100, 100])
        self.assertEqual(usage.course([]), [])

    def test_each_look_at_a_warm_process_is_kept(self):
        watch = usage.Watch(0)
        for _ in range(3):
            watch.look(os.getpid(), "nobody")
        each, = watch.compared()
        self.assertEqual([seconds for seconds, _ in each["memory"]], [0, 0, 0])


if __name__ == "__main__":
    unittest.main()

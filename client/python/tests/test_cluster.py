import threading
import time

import numpy as np
import pytest

import penstock


def test_hello_tells_who_answers(a):
    assert a.service.node == "a" and a.service.incarnation > 0 and a.service.devices
    assert "node 'a'" in repr(a)


def test_nodes_and_status_are_told(a):
    nodes = a.nodes()
    assert nodes[0].name == "a" and nodes[0].state == "self"
    assert [each.state for each in nodes if each.name == "b"] == ["connected"]
    assert nodes[1].raw["name"] == nodes[1].name
    status = a.status()
    assert status["node"] == "a" and status["devices"][0]["cards"]
    assert "id" not in status and a.call("status")["node"] == "a"
    with pytest.raises(penstock.InvalidArgument, match="no_such_operation"):
        a.call("no_such_operation")


def test_a_node_that_is_not_there_is_waited_for_in_vain(a):
    with pytest.raises(penstock.PeerLost, match="not known"):
        a.wait_connected("nobody", timeout=0.2)


def test_nobody_there_is_told_in_time():
    started = time.monotonic()
    with pytest.raises(penstock.NoAnswer, match="is penstockd running"):
        penstock.Client("ipc:///tmp/there-is-no-penstockd-here", timeout=0.5)
    assert time.monotonic() - started < 5
    with pytest.raises(penstock.InvalidArgument):
        penstock.Client("nonsense")
    with pytest.raises(penstock.InvalidArgument):
        penstock.Client(timeout=0)


def test_notifications_reach_the_destination(a, b, name):
    with a.allocate(name, 8192) as here, b.allocate(name, 8192) as there, \
            b.subscribe(["notify"]) as events:
        here.array[:] = 3
        transfer = a.write(here, "b", there, notify="request 81")
        event = events.get(timeout=20)
        told = event.body
        assert isinstance(told, penstock.Notification) and event.topic == "notify"
        assert (told.from_node, told.region, told.bytes, told.data) == \
            ("a", name, 8192, b"request 81")
        assert told.transfer == transfer.wait_accepted(20)
        assert there.array.sum() == 3 * 8192  # visible already


def test_subscriptions_hear_of_everybodys_transfers(pair, a, b, name):
    with a.allocate(name, 4096) as here, b.allocate(name, 4096) as there:
        heard = []
        came = threading.Event()
        with a.subscribe(["transfers"], callback=lambda event: (heard.append(event), came.set())):
            with pair.client("a") as other:
                result = other.write(here, "b", there).result(20)
            assert came.wait(20)
            assert heard[0].body == result and heard[0].raw["seq"] == heard[0].sequence
        since = heard[0].sequence - 1
        with a.subscribe(["transfers"], since=since) as again:
            assert again.get(20).body == result


def test_an_event_comes_once_however_many_ask_for_the_past(a, name):
    with a.allocate(name, 4096) as here, a.subscribe(["notify"]) as first:
        for i in range(3):
            a.write(here, "", here, size=8, dst_offset=8, notify=str(i)).result(20)
        since = first.get(20).sequence - 1
        with a.subscribe(["notify"], since=since) as second:  # the service tells them again
            assert [second.get(20).body.data for _ in range(3)] == [b"0", b"1", b"2"]
        assert [first.get(20).body.data for _ in range(2)] == [b"1", b"2"]
        with pytest.raises(TimeoutError):
            first.get(timeout=0.2)


def test_a_stopped_subscription_ends_its_iteration(a):
    subscription = a.subscribe(["members"])
    threading.Timer(0.2, subscription.stop).start()
    assert list(subscription) == []
    with pytest.raises(EOFError):
        subscription.get(0)
    with pytest.raises(penstock.InvalidArgument):
        a.subscribe(["no such topic"])


def test_no_event_is_a_timeout(a):
    with a.subscribe(["members"]) as subscription:
        with pytest.raises(TimeoutError, match="members"):
            subscription.get(timeout=0.1)


def test_a_closed_client_says_so(pair, name):
    client = pair.client("a")
    client.close()
    client.close()
    with pytest.raises(penstock.Cancelled):
        client.nodes()


def test_closing_does_not_wait_for_a_service_that_is_gone(services):
    cluster = services("c")
    client = cluster.client("c", timeout=30)
    client.allocate("r", 4096)
    cluster.kill("c")
    with pytest.raises(penstock.NoAnswer):
        client.call("nodes", timeout=0.3)
    started = time.monotonic()
    client.close()
    assert time.monotonic() - started < 15


def test_a_service_that_stops_answering_is_a_timeout(services):
    cluster = services("c")
    with cluster.client("c", timeout=5) as client:
        cluster.signal("c", 19)
        with pytest.raises(penstock.NoAnswer, match="is the service busy or stopped"):
            client.call("nodes", timeout=0.5)
        cluster.signal("c", 18)
        assert client.nodes()


def test_a_restart_brings_regions_and_subscriptions_back(services):
    cluster = services("c", "d")
    restarts = []
    settled = threading.Event()

    def restarted(restart):
        restarts.append(restart)
        settled.set()

    with cluster.client("c", restarted=restarted) as c, cluster.client("d") as d:
        own = penstock.shared_array(1 << 20)
        own[:] = 7
        theirs = c.allocate("theirs", 1 << 20)
        array, epoch, address = theirs.array, theirs.epoch, theirs.array.ctypes.data
        array[:] = 9
        mine = c.register("mine", own)
        gone = c.allocate("gone", 4096)
        gone.release()
        target = d.allocate("target", 1 << 20)
        for _ in range(30):  # the numbers of the events after the restart are below these
            c.write(theirs, "", "mine", size=8, notify=b"before").result(20)
        own[:] = 7
        notify = c.subscribe(["notify"])
        cluster.signal("d", 19)  # so that a transfer is under way when the service dies
        d_cannot = c.write(mine, "d", "target")
        d_cannot.wait_accepted(20)
        before = c.service.incarnation
        cluster.kill("c")
        with pytest.raises(penstock.NoAnswer):
            c.call("nodes", timeout=0.3)
        cluster.signal("d", 18)
        cluster.start("c")
        assert settled.wait(30)
        assert c.service.incarnation != before
        assert restarts[0].regions == ("theirs", "mine") and restarts[0].lost == ()
        lost = d_cannot.wait(20)
        assert lost.state == "lost" and isinstance(lost.error, penstock.Lost)
        assert lost.error.code == "PEER_LEFT"
        # Allocated memory is new and zero, at the same place; our own keeps what it holds.
        assert (theirs.epoch, theirs.info.shared_name) != (epoch, "")
        assert theirs.array.ctypes.data == address and not array.any()
        array[:] = 5
        assert sorted(each.name for each in c.regions()) == ["mine", "theirs"]
        c.wait_connected("d")
        d.wait_connected("c")
        c.write(mine, "d", "target").result(20)
        assert (target.array == 7).all()
        c.write(theirs, "d", "target").result(20)
        assert (target.array == 5).all()
        d.write(target, "c", "mine", notify=b"again").result(20)
        assert notify.get(20).body.data == b"again"
        assert (own == 5).all()


def test_a_region_that_cannot_be_made_again_is_told(services):
    cluster = services("c")
    restarts = []
    settled = threading.Event()
    with cluster.client("c", restarted=lambda restart: (restarts.append(restart), settled.set())) \
            as c:
        c.register("named", shared_name=named_segment(), size=4096)
        unlink_segments()
        c.allocate("other", 4096)
        cluster.kill("c")
        cluster.start("c")
        assert settled.wait(30)
        assert restarts[0].regions == ("other",)
        assert len(restarts[0].lost) == 1 and "named" in restarts[0].lost[0].message


_segments = []


def named_segment():
    array = penstock.shared_array(4096)
    _segments.append(array)
    from penstock._mapping import shared_place
    return shared_place(array).shared_name


def unlink_segments():
    _segments.clear()


def test_members_are_followed_and_drained(services):
    cluster = services("c", "d")
    with cluster.client("c") as c, c.subscribe(["members"]) as members:
        cluster.start("e")
        assert wait_for(members, "joined", "e").incarnation > 0
        c.wait_connected("e")
        c.drain("e", deadline=5)
        wait_for(members, "draining", "e")
        wait_for(members, "left", "e")
        assert cluster.wait_ended("e") == 0
        cluster.kill("d")
        wait_for(members, "dead", "d")
        c.remove("d")
        with pytest.raises(penstock.NotFound):
            c.remove("nobody")


def wait_for(members, kind, node):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        change = members.get(timeout=30).body
        if (change.kind, change.node) == (kind, node):
            return change
    raise AssertionError(f"{node} was not {kind}")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of fork() itself
def test_a_forked_child_is_refused(a):
    import os
    child = os.fork()
    if child == 0:
        try:
            a.nodes()
        except penstock.InvalidArgument:
            os._exit(0)
        except BaseException:
            os._exit(2)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert a.nodes()


def test_many_small_transfers_all_end(a, b, name):
    with a.allocate(name, 1 << 20) as here, b.allocate(name, 1 << 20) as there:
        here.array[:] = np.arange(1 << 20, dtype=np.uint32).view(np.uint8)[:1 << 20]
        transfers = [a.write(here, "b", there, src_offset=i * 1024, dst_offset=i * 1024, size=1024)
                     for i in range(1024)]
        assert all(each.ok for each in penstock.wait_all(transfers, 60))
        assert np.array_equal(here.array, there.array)

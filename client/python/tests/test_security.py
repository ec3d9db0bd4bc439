"""Keys, roles and leases, against a real service."""

import subprocess
import time

import demo_services
import pytest

import penstock


@pytest.fixture
def guarded(services):
    """A service whose tcp endpoint asks for keys; gives it, the endpoint and the folder of keys."""
    cluster = services("k")
    folder = cluster.folder

    def keygen(name):
        subprocess.run([demo_services.binary("penstock"), "keygen", str(folder / name)], check=True,
                       stdout=subprocess.DEVNULL)
        return (folder / f"{name}.pub").read_text().strip()

    keygen("service")
    (folder / "clients").write_text(f"read watcher {keygen('watcher')}\n"
                                    f"transfer worker {keygen('worker')}\n")
    keygen("stranger")
    endpoint = f"tcp://127.0.0.1:{demo_services.free_port()}"
    cluster.settings += [f"request.bind=[{endpoint}, {cluster.endpoint('k')}]",
                         f"security.key_file={folder / 'service'}",
                         f"security.allow_list={folder / 'clients'}"]
    cluster.kill("k")
    cluster.start("k")
    cluster.connect_all("k")
    return cluster, endpoint, folder


def client(guarded, key, **arguments):
    _, endpoint, folder = guarded
    return penstock.Client(endpoint, **{"timeout": 20, "key_file": str(folder / key),
                                        "server_key": str(folder / "service.pub"), **arguments})


def test_a_client_is_let_in_by_its_key_and_does_what_its_role_may(guarded, monkeypatch):
    with client(guarded, "worker") as worker, client(guarded, "watcher") as watcher:
        worker.allocate("kv", 1 << 20)
        assert [region.name for region in watcher.regions()] == ["kv"]
        with pytest.raises(penstock.Denied, match="needs the role transfer"):
            watcher.allocate("other", 4096)
        with pytest.raises(penstock.Denied, match="needs the role admin"):
            worker.drain()
    _, endpoint, folder = guarded
    monkeypatch.setenv("PENSTOCK_KEY_FILE", str(folder / "watcher"))
    monkeypatch.setenv("PENSTOCK_SERVER_KEY", (folder / "service.pub").read_text().strip())
    with penstock.Client(endpoint, 20) as by_environment:
        assert by_environment.service.node == "k"


def test_a_stranger_is_told_that_it_is_one(guarded):
    _, endpoint, folder = guarded
    with pytest.raises(penstock.Denied, match="allow-list"):
        client(guarded, "stranger")
    with pytest.raises(penstock.Denied, match="it asks for a key"):
        penstock.Client(endpoint, 20)
    with pytest.raises(penstock.NoAnswer):
        client(guarded, "worker", server_key=str(folder / "worker.pub"), timeout=0.5)


def test_keys_that_cannot_be_meant_are_refused_before_anything_is_sent(guarded):
    _, _, folder = guarded
    with pytest.raises(penstock.InvalidArgument, match="two parts"):
        client(guarded, "worker", server_key="")
    (folder / "clients").chmod(0o600)
    with pytest.raises(penstock.InvalidArgument, match="40"):
        client(guarded, "clients")
    (folder / "worker").chmod(0o644)
    with pytest.raises(penstock.Denied, match="chmod 600"):
        client(guarded, "worker")


def test_an_ipc_endpoint_asks_for_no_key(guarded):
    cluster, _, folder = guarded
    with cluster.client("k", key_file=str(folder / "nothing"), server_key="x") as local:
        assert local.nodes()


def test_what_a_client_that_died_had_is_released_but_not_what_it_left(pair, a, name):
    dying = penstock.Client(pair.endpoint("a"), 20, lease=0.3)
    dying.allocate(name, 4096)
    dying.allocate(f"{name}.left", 4096).detach()
    time.sleep(0.9)  # it lives: it is heard
    assert {name, f"{name}.left"} <= {region.name for region in a.regions()}
    dying._core.close()  # without a word to the service, as a process that is killed
    until = time.monotonic() + 20
    while name in {region.name for region in a.regions()} and time.monotonic() < until:
        time.sleep(0.02)
    names = {region.name for region in a.regions()}
    assert name not in names and f"{name}.left" in names
    a.release(f"{name}.left")


def test_a_verified_transfer_is_done_when_both_sides_are_the_same(a, b, name):
    source, target = a.allocate(name, 1 << 20), b.allocate(name, 1 << 20)
    source.array[:] = 7
    assert a.write(source, "b", name, verify=True).result(20).state == "done"
    assert (target.array == 7).all()
    assert a.read(source, "b", name, verify=True).result(20).state == "done"
    target.release()
    source.release()

#!/usr/bin/env python3
"""Writes the topology files of this folder: hwloc 2 XML of machines that are rarely at hand.

    ./generate.py            writes every machine beside this script
    ./generate.py --check    writes nothing, fails when a file differs from what would be written

The files feed `fabric.topology_file`, `penstock topology --xml` and the tests. What they hold:

p5.48xlarge      NUMA nodes, cores, bus numbers, PCI ids and card names as on the machine. The slot
                 of a port within its bus, and where the ENA card and its bus are, are made up.
p5en.48xlarge    The shape (4 switches of 2 GPUs and 4 cards, 200 Gbps each) is the machine's; the
p6-b200.48xlarge bus numbers and PCI ids are made up. The same for 2 GPUs and 2 cards of 400 Gbps.
two-nic-server   A plain server: two sockets, one 100 Gbps card on each, no GPU, no PCIe switch.

Link speeds of bridges are deliberately those that the machines report (15.75 GB/s above four cards
that carry 50 GB/s together): nobody may take the smallest link of a path for its bandwidth.
"""

import pathlib
import sys
from xml.sax.saxutils import quoteattr

GIB = 1 << 30
BRIDGE_GB_PER_S = "15.753846"
BLOCK, NET, OPENFABRICS = 0, 2, 3  # hwloc_obj_osdev_type_t


class Element:
    """An <object> or <info> of the file; attributes keep the order in which they are given."""

    def __init__(self, tag, children=(), **attributes):
        self.tag, self.children, self.attributes = tag, list(children), attributes

    def render(self, out, depth, numbering):
        attributes = dict(self.attributes)
        if self.tag == "object":
            numbering[0] += 1
            attributes["gp_index"] = numbering[0]
        text = "".join(f" {name}={quoteattr(str(value))}" for name, value in attributes.items())
        indent = "  " * depth
        if not self.children:
            out.append(f"{indent}<{self.tag}{text}/>")
            return
        out.append(f"{indent}<{self.tag}{text}>")
        for child in self.children:
            child.render(out, depth + 1, numbering)
        out.append(f"{indent}</{self.tag}>")


def bitmap(indexes):
    """hwloc's text for a set: 32-bit words, the highest first."""
    value = sum(1 << i for i in indexes)
    words = []
    while True:
        words.append(f"0x{value & 0xffffffff:08x}")
        value >>= 32
        if not value:
            return ",".join(reversed(words))


def sets(cpus, nodes):
    return {"cpuset": bitmap(cpus), "complete_cpuset": bitmap(cpus),
            "nodeset": bitmap(nodes), "complete_nodeset": bitmap(nodes)}


def bus_id(bus, slot=0):
    return f"0000:{bus:02x}:{slot:02x}.0"


def os_device(name, kind):
    return Element("object", type="OSDev", name=name, osdev_type=kind)


def pci_device(bus, pci_class, ids, gb_per_s, *os_devices, slot=0):
    return Element("object", os_devices, type="PCIDev", pci_busid=bus_id(bus, slot),
                   pci_type=f"{pci_class} [{ids}] [0000:0000] 00", pci_link_speed=gb_per_s)


def efa(bus, device, gb_per_s):
    return pci_device(bus, "0200", f"1d0f:{device}", gb_per_s,
                      os_device(f"rdmap{bus}s0", OPENFABRICS))


def port(bus, slot, first, last, depth, children):
    """A PCI bridge at bus:slot with the buses first..last behind it."""
    return Element("object", children, type="Bridge", bridge_type="1-1", depth=depth,
                   bridge_pci=f"0000:[{first:02x}-{last:02x}]", pci_busid=bus_id(bus, slot),
                   pci_type="0604 [1d0f:0200] [0000:0000] 00", pci_link_speed=BRIDGE_GB_PER_S)


def root_complex(first, last, children):
    return Element("object", children, type="Bridge", bridge_type="0-1", depth=0,
                   bridge_pci=f"0000:[{first:02x}-{last:02x}]")


def switch(root, devices):
    """Root port on bus R, upstream port on R+1, one downstream port on R+2 per (bus, device)."""
    last = max(bus for bus, _ in devices)
    downstream = [port(root + 2, slot, bus, bus, 3, [device])
                  for slot, (bus, device) in enumerate(sorted(devices, key=lambda d: d[0]))]
    upstream = port(root + 1, 0, root + 2, last, 2, downstream)
    return root_complex(root, last, [port(root, 0, root + 1, last, 1, [upstream])])


def machine(name, cores_per_socket, memory_bytes, io_of_socket):
    """Two sockets, one NUMA node each. SMT siblings are numbered after all first threads."""
    sockets, siblings = range(2), 2 * cores_per_socket
    packages = []
    for socket in sockets:
        cores = range(socket * cores_per_socket, (socket + 1) * cores_per_socket)
        cpus = [cpu for core in cores for cpu in (core, core + siblings)]
        memory = Element("object", type="NUMANode", os_index=socket, **sets(cpus, [socket]),
                         local_memory=memory_bytes)
        core_objects = [
            Element("object",
                    [Element("object", type="PU", os_index=cpu, **sets([cpu], [socket]))
                     for cpu in (core, core + siblings)],
                    type="Core", os_index=core, **sets([core, core + siblings], [socket]))
            for core in cores]
        packages.append(Element("object", [memory, *core_objects, *io_of_socket[socket]],
                                type="Package", os_index=socket, **sets(cpus, [socket])))
    every_cpu, every_node = range(2 * siblings), list(sockets)
    about = Element("info", name="DMIProductName", value=name)
    origin = Element("info", name="Origin", value="config/topology/generate.py")
    return Element("object", [about, origin, *packages], type="Machine", os_index=0,
                   **sets(every_cpu, every_node), allowed_cpuset=bitmap(every_cpu),
                   allowed_nodeset=bitmap(every_node))


def ena():
    """The ordinary network card beside the EFA cards; never one of them."""
    return root_complex(0x00, 0x07, [
        pci_device(0x00, "0200", "1d0f:ec20", 0, os_device("ens5", NET), slot=5)])


def p5():
    io = [[ena()], []]
    for g in range(8):
        root = 0x44 + 0x11 * g
        devices = [(bus, efa(bus, "efa1", BRIDGE_GB_PER_S))
                   for bus in range(root + 0x0b, root + 0x0f)]
        devices.append((root + 0x0f, pci_device(root + 0x0f, "0302", "10de:2330", "63.015385")))
        devices.append((root + 0x10, pci_device(root + 0x10, "0108", "1d0f:cd01", "7.876923",
                                                os_device(f"nvme{g + 1}n1", BLOCK))))
        io[g // 4].append(switch(root, devices))
    return machine("p5.48xlarge", 48, 1024 * GIB, io)


def paired(name, cards_per_switch, efa_device, card_gb_per_s, gpu_ids):
    """Four switches with two GPUs and some cards each."""
    io = [[ena()], []]
    for s in range(4):
        root = 0x40 + 0x20 * s
        first_card, first_gpu = root + 0x10, root + 0x18
        devices = [(bus, efa(bus, efa_device, card_gb_per_s))
                   for bus in range(first_card, first_card + cards_per_switch)]
        devices += [(bus, pci_device(bus, "0302", gpu_ids, "63.015385"))
                    for bus in (first_gpu, first_gpu + 1)]
        io[s // 2].append(switch(root, devices))
    return machine(name, 48, 1024 * GIB, io)


def two_nic_server():
    def card(bus, name, port_number):
        return pci_device(bus, "0200", "15b3:101d", "31.507692", os_device(name, NET),
                          os_device(f"mlx5_{port_number}", OPENFABRICS))
    io = [[root_complex(0x30, 0x31, [port(0x30, 1, 0x31, 0x31, 1, [card(0x31, "ens1np0", 0)])])],
          [root_complex(0xb0, 0xb1, [port(0xb0, 1, 0xb1, 0xb1, 1, [card(0xb1, "ens2np0", 1)])])]]
    return machine("two-nic-server", 16, 128 * GIB, io)


MACHINES = {
    "p5.48xlarge": p5,
    "p5en.48xlarge": lambda: paired("p5en.48xlarge", 4, "efa2", "31.507692", "10de:2335"),
    "p6-b200.48xlarge": lambda: paired("p6-b200.48xlarge", 2, "efa3", "63.015385", "10de:2901"),
    "two-nic-server": two_nic_server,
}


def text_of(root):
    out = ['<?xml version="1.0" encoding="UTF-8"?>',
           '<!DOCTYPE topology SYSTEM "hwloc2.dtd">',
           '<topology version="2.0">']
    root.render(out, 1, [0])
    out.append("</topology>")
    return "\n".join(out) + "\n"


def main(arguments):
    if arguments not in ([], ["--check"]):
        sys.exit("usage: generate.py [--check]")
    folder, stale = pathlib.Path(__file__).parent, []
    for name, build in MACHINES.items():
        path, text = folder / f"{name}.xml", text_of(build())
        if not arguments:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            stale.append(path.name)
    if stale:
        sys.exit(f"not what generate.py writes: {', '.join(stale)}; run it and commit the result")


if __name__ == "__main__":
    main(sys.argv[1:])

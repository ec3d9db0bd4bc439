// The only place that calls hwloc.
#pragma once

#include <string>

#include "transport/topology/topology.hpp"

namespace penstock {

/// Asks hwloc about this machine.
Result<Topology> read_this_machine();

/// Gives `xml` to hwloc. hwloc's own parser does not survive every broken text (measured: one
/// broken file in ten crashes it), so only read_xml_isolated may call this.
Result<Topology> read_xml(const std::string& xml);

/// What the process of read_xml_isolated answered. A broken file may have made it say anything.
Result<Topology> topology_of_reply(const std::string& reply);

/// read_xml in a process of its own: whatever happens there costs an error here. At most 10 s.
Result<Topology> read_xml_isolated(const std::string& xml);

}  // namespace penstock
